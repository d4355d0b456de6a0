"""Small steps that the tests of the backend are made of."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engine.backend import Batch, Copy, Entry, Sampled, Trim
from antiphon.engine.base import Sampling
from antiphon.engine.llama import LlamaBackend

GREEDY = Sampling(temperature=0)


def empty(backend: LlamaBackend) -> None:
    backend.execute(Batch(moves=tuple(Trim(slot, 0) for slot in range(backend.slots))))


def prefill(backend: LlamaBackend, slot: int, tokens: Sequence[int], start: int = 0) -> None:
    """Computes tokens, in as many batches as it takes, and samples nothing."""
    step = backend.batch_tokens
    for at in range(0, len(tokens), step):
        backend.execute(Batch(entries=(Entry(slot, start + at, tokens[at : at + step]),)))


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
        found += backend.execute(Batch(entries=(Entry(slot, position, (last,), sampler),)))
        last, position = found[-1].token, position + 1
    sampler.close()
    backend.execute(Batch(moves=(Trim(slot, 0),)))
    return found


def generate_together(
    backend: LlamaBackend, prompts: Sequence[Sequence[int]], count: int, sampling: Sampling = GREEDY, *, shared: int = 0
) -> list[list[Sampled]]:
    """All prompts in slots 0, 1, ... in the same batches; the first `shared` tokens are computed once and copied."""
    samplers = [backend.sampler(sampling, prompt) for prompt in prompts]
    if shared:
        prefill(backend, 0, prompts[0][:shared])
        backend.execute(Batch(moves=tuple(Copy(0, slot, shared) for slot in range(1, len(prompts)))))
    for slot, prompt in enumerate(prompts):
        prefill(backend, slot, prompt[shared:-1], shared)
    found: list[list[Sampled]] = [[] for _ in prompts]
    for step in range(count):
        last = [run[-1].token if run else prompt[-1] for run, prompt in zip(found, prompts, strict=True)]
        entries = tuple(
            Entry(slot, len(prompt) - 1 + step, (last[slot],), samplers[slot]) for slot, prompt in enumerate(prompts)
        )
        for run, sampled in zip(found, backend.execute(Batch(entries=entries)), strict=True):
            run.append(sampled)
    empty(backend)
    return found


def ids(run: Sequence[Sampled]) -> list[int]:
    return [sampled.token for sampled in run]
