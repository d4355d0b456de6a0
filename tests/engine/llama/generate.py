"""Small steps that the tests of the backend are made of."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engine.backend import Batch, Entry, Move, Sampled, Share, Trim
from antiphon.engine.base import EngineFailure, Sampling, TokenLogprob
from antiphon.engine.llama import LlamaBackend

GREEDY = Sampling(temperature=0)
JUDGED = Sampling(temperature=0, top_logprobs=2)

# With flash attention and an f16 cache, a sequence that lies elsewhere in the cache, or has company, may get slightly
# other logits (0.6 at most was seen). So two greedy texts may part where the two best tokens lie closer than this, and
# nowhere else.
TOLERANCE = 0.6


def move(backend: LlamaBackend, *moves: Move) -> None:
    assert backend.execute(Batch(moves=moves)) == []


def compute(backend: LlamaBackend, *entries: Entry) -> list[Sampled]:
    """What was sampled. Raises a failure that is among the results."""
    found = []
    for result in backend.execute(Batch(entries=entries)):
        if isinstance(result, EngineFailure):
            raise result
        found.append(result)
    return found


def empty(backend: LlamaBackend) -> None:
    move(backend, *(Trim(slot, 0) for slot in range(backend.slots)))


def prefill(backend: LlamaBackend, slot: int, tokens: Sequence[int], start: int = 0) -> None:
    """Computes tokens, in as many batches as it takes, and samples nothing."""
    step = backend.batch_tokens
    for at in range(0, len(tokens), step):
        compute(backend, Entry(slot, start + at, tokens[at : at + step]))


def make_node(backend: LlamaBackend, slot: int, tokens: Sequence[int], start: int = 0) -> None:
    """Puts the positions of `tokens` from `start` on into a slot for prefixes, computed in lane 0."""
    prefill(backend, 0, tokens)
    move(backend, Share(0, slot, start, len(tokens)), Trim(0, 0))


def generate(
    backend: LlamaBackend,
    prompt: Sequence[int],
    count: int,
    sampling: Sampling = GREEDY,
    *,
    slot: int = 0,
    start: int = 0,
) -> list[Sampled]:
    """`count` tokens after a prompt whose first `start` ones are in the slot already; end tokens are like others."""
    sampler = backend.sampler(sampling, prompt)
    prefill(backend, slot, prompt[start:-1], start)
    found: list[Sampled] = []
    last, position = prompt[-1], len(prompt) - 1
    for _ in range(count):
        found += compute(backend, Entry(slot, position, (last,), sampler))
        last, position = found[-1].token, position + 1
    sampler.close()
    move(backend, Trim(slot, 0))
    return found


def generate_together(
    backend: LlamaBackend, prompts: Sequence[Sequence[int]], count: int, sampling: Sampling = GREEDY, *, shared: int = 0
) -> list[list[Sampled]]:
    """All prompts in lanes 0, 1, ... in the same batches; the first `shared` tokens are computed once and shared."""
    samplers = [backend.sampler(sampling, prompt) for prompt in prompts]
    if shared:
        prefill(backend, 0, prompts[0][:shared])
        move(backend, *(Share(0, slot, 0, shared) for slot in range(1, len(prompts))))
    for slot, prompt in enumerate(prompts):
        prefill(backend, slot, prompt[shared:-1], shared)
    found: list[list[Sampled]] = [[] for _ in prompts]
    for step in range(count):
        last = [run[-1].token if run else prompt[-1] for run, prompt in zip(found, prompts, strict=True)]
        entries = [
            Entry(slot, len(prompt) - 1 + step, (last[slot],), samplers[slot]) for slot, prompt in enumerate(prompts)
        ]
        for run, sampled in zip(found, compute(backend, *entries), strict=True):
            run.append(sampled)
    empty(backend)
    return found


def ids(run: Sequence[Sampled]) -> list[int]:
    return [sampled.token for sampled in run]


def assert_same_but_for_ties(run: Sequence[Sampled], reference: Sequence[Sampled]) -> None:
    """`reference` was sampled as `JUDGED`."""
    assert_same_tokens(ids(run), [sampled.logprob for sampled in reference if sampled.logprob is not None])


def assert_same_tokens(tokens: Sequence[int], reference: Sequence[TokenLogprob]) -> None:
    """Equal, or parted where what was taken instead is among the best of the reference, and as good."""
    assert len(tokens) == len(reference)
    for token, expected in zip(tokens, reference, strict=True):
        if token != expected.token:
            best = dict(expected.top)
            assert token in best, "the other token was not among the best"
            assert expected.logprob - best[token] < TOLERANCE
            return  # behind the fork the texts are different ones


def assert_holds(backend: LlamaBackend, lane: int, length: int) -> None:
    """A lane goes on exactly where it ends, and nowhere else."""
    compute(backend, Entry(lane, length, (5,)))
    move(backend, Trim(lane, length))
