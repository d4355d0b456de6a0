"""The scripted engine: what is played, when, to whom, and how it ends."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest

from antiphon.engine.base import EngineFailure, Finish, Generation, Sampling, Step, StepStream, TokenLogprob
from antiphon.engine.byte_tokenizer import ByteTokenizer
from antiphon.engine.script_file import parse_script
from antiphon.engine.scripted import ScriptedEngine, newest_block
from tests.engine.constraints import OneOf

CHATML = ["<|im_start|>", "<|im_end|>"]
IDS = (f"resp_{n}" for n in itertools.count())


class Sleeper:
    """A clock that stands still: `sleep` returns when the test lets it."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._sleeping: list[asyncio.Future[None]] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        waking = asyncio.get_running_loop().create_future()
        self._sleeping.append(waking)
        await waking

    async def wake(self) -> None:
        """Lets everything that sleeps go on, until it sleeps again or has ended."""
        sleeping, self._sleeping = self._sleeping, []
        for waking in sleeping:
            if not waking.done():
                waking.set_result(None)
        await settle()


async def settle() -> None:
    """Runs whatever can run without waiting."""
    for _ in range(3):
        await asyncio.sleep(0)


def engine(*turns: Any, sleep: Any = asyncio.sleep, **keys: Any) -> ScriptedEngine:
    script = parse_script(msgspec.json.encode({"turns": turns, "special_tokens": CHATML, **keys}))
    return ScriptedEngine(script, sleep=sleep)


def submit(
    engine: ScriptedEngine, text: str = "hi", max_tokens: int | None = None, top_logprobs: int | None = None
) -> StepStream:
    prompt = engine.tokenizer.encode(text, control=True)
    sampling = Sampling(top_logprobs=top_logprobs)
    return engine.submit(Generation(id=next(IDS), prompt=prompt, max_tokens=max_tokens, sampling=sampling))


async def read(stream: StepStream) -> tuple[list[Step], str | None]:
    """All steps, and the failure if there was one."""
    steps: list[Step] = []
    try:
        while not (steps and steps[-1].finish):
            steps += await stream.take()
    except EngineFailure as failure:
        return steps, str(failure)
    return steps, None


def text_of(steps: list[Step]) -> str:
    return ByteTokenizer(CHATML).decode(token for step in steps for token in step.tokens)


def pieces(steps: list[Step]) -> list[str]:
    return [text_of([step]) for step in steps]


async def answer(engine: ScriptedEngine, text: str = "hi", **keys: Any) -> str:
    steps, failure = await read(submit(engine, text, **keys))
    return text_of(steps) if failure is None else f"{text_of(steps)}! {failure}"


# What is played


async def test_each_string_is_one_step_and_the_last_one_finishes() -> None:
    stream = submit(engine({"steps": ["Hello", " there", "!"]}))
    steps = await stream.take()  # no pause between them: they come at once
    assert pieces(steps) == ["Hello", " there", "!"]
    assert [step.finish for step in steps] == [None, None, Finish.STOP]
    assert stream.cached_tokens == 0


async def test_an_empty_generation_is_one_step_without_tokens() -> None:
    assert await read(submit(engine({"steps": []}))) == ([Step((), Finish.STOP)], None)


async def test_the_finish_of_the_file() -> None:
    steps, _ = await read(submit(engine({"steps": ["ab"], "finish": "length"})))
    assert steps == [Step((97, 98), Finish.LENGTH)]


async def test_a_torn_character_stays_torn() -> None:
    steps, _ = await read(submit(engine({"steps": [{"hex": "e282"}, {"hex": "ac"}]})))
    assert [step.tokens for step in steps] == [(0xE2, 0x82), (0xAC,)]
    assert text_of(steps) == "€"


async def test_a_special_token_is_a_token_and_no_end() -> None:
    steps, _ = await read(submit(engine({"steps": ["a<|im_end|>", "b"]})))
    assert [step.tokens for step in steps] == [(97, 257), (98,)]
    assert [step.finish for step in steps] == [None, Finish.STOP]


async def test_repeat_plays_the_list_again_and_finishes_once() -> None:
    steps, _ = await read(submit(engine({"steps": ["a", "b"], "repeat": 3})))
    assert pieces(steps) == ["a", "b"] * 3
    assert [step.finish for step in steps] == [None] * 5 + [Finish.STOP]


async def test_repeat_with_a_failure_ends_in_the_first_round() -> None:
    assert await answer(engine({"steps": ["a", {"fail": "lost"}], "repeat": 3})) == "a! lost"


async def test_pauses_part_the_steps() -> None:
    sleeper = Sleeper()
    stream = submit(engine({"steps": ["a", {"wait_ms": 200}, "b", {"wait_ms": 50}], "repeat": 2}, sleep=sleeper))
    seen = []
    for _ in range(5):
        await sleeper.wake()
        seen.append(stream.ready())
    assert [pieces(steps) for steps in seen] == [["a"], ["b"], ["a"], ["b"], [""]]
    assert sleeper.asked == [0.2, 0.05, 0.2, 0.05]
    assert seen[-1] == [Step((), Finish.STOP)]


async def test_prefill_delays_the_first_step_of_the_first_round() -> None:
    sleeper = Sleeper()
    stream = submit(engine({"steps": [{"prefill_ms": 3000}, "a"], "repeat": 2}, sleep=sleeper))
    await settle()
    assert stream.ready() == []
    await sleeper.wake()
    assert pieces(stream.ready()) == ["a", "a"]
    assert sleeper.asked == [3.0]


async def test_the_same_requests_give_the_same_steps() -> None:
    turns = [{"when": "a", "steps": ["x"], "times": 1}, {"steps": ["y", "z"]}]
    runs = []
    for _ in range(2):
        played = engine(*turns)
        runs.append([await read(submit(played, text)) for text in ("a", "a", "b")])
    assert runs[0] == runs[1]


async def test_streams_share_the_steps_of_a_turn() -> None:
    played = engine({"steps": ["a", "b"]})
    (first, _), (second, _) = await read(submit(played)), await read(submit(played))
    assert all(one is other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize(("top", "alternatives"), [(0, ()), (1, ((97, 0.0),)), (20, ((97, 0.0),))])
async def test_log_probabilities_are_certain(top: int, alternatives: Any) -> None:
    steps, _ = await read(submit(engine({"steps": ["a", "ab"]}), top_logprobs=top))
    assert steps[0].logprobs == (TokenLogprob(97, 0.0, alternatives),)
    assert [entry.token for entry in steps[1].logprobs] == [97, 98]
    assert steps[1].finish is Finish.STOP


async def test_log_probabilities_are_cut_with_the_tokens() -> None:
    steps, _ = await read(submit(engine({"steps": ["abc"]}), max_tokens=2, top_logprobs=0))
    assert [(len(step.tokens), len(step.logprobs)) for step in steps] == [(2, 2)]


async def test_without_the_wish_there_are_no_log_probabilities() -> None:
    steps, _ = await read(submit(engine({"steps": ["a"]})))
    assert steps[0].logprobs == ()


# Which turn answers


def chat(*blocks: str) -> str:
    return "".join(f"<|im_start|>{block}<|im_end|>\n" for block in blocks) + "<|im_start|>assistant\n"


async def test_the_first_turn_that_fits_answers() -> None:
    played = engine({"when": "Par.s", "steps": ["1"]}, {"when": "Paris|Rome", "steps": ["2"]}, {"steps": ["3"]})
    texts = [chat(f"user\nin {city}") for city in ("Paris", "Rome", "Oslo")]
    assert [await answer(played, text) for text in texts] == ["1", "2", "3"]


async def test_when_looks_at_the_newest_block_only() -> None:
    played = engine({"when": "Paris", "steps": ["newest"]}, {"steps": ["other"]})
    assert await answer(played, chat("user\nParis", "assistant\nParis!", "user\nthanks")) == "other"
    assert await answer(played, chat("user\nhello", "tool\nParis")) == "newest"
    assert await answer(played, chat("user\nhello") + "Paris") == "other"  # after the last marker


async def test_scope_prompt_looks_everywhere() -> None:
    played = engine({"when": "Paris", "scope": "prompt", "steps": ["found"]}, {"steps": ["other"]})
    assert await answer(played, chat("user\nParis", "user\nthanks")) == "found"
    assert await answer(played, chat("user\nthanks")) == "other"


async def test_when_sees_control_tokens_as_their_spelling() -> None:
    played = engine({"when": r"^user\nhi<\|im_end\|>\n$", "steps": ["yes"]})
    assert await answer(played, chat("user\nhi")) == "yes"


async def test_when_does_not_fail_on_torn_characters() -> None:
    played = engine({"when": "\ufffd", "steps": ["torn"]})
    stream = played.submit(Generation(id="resp_torn", prompt=[0xE2, 0x82]))
    assert text_of((await read(stream))[0]) == "torn"


async def test_times_counts_over_the_life_of_the_engine() -> None:
    played = engine({"when": "a", "times": 2, "steps": ["first"]}, {"steps": ["then"]})
    assert [await answer(played, text) for text in "abaaa"] == ["first", "then", "first", "then", "then"]


async def test_times_counts_in_the_order_of_submission() -> None:
    played = engine({"times": 1, "steps": [{"wait_ms": 0}, "one"]}, {"steps": ["two"]})
    streams = [submit(played), submit(played)]
    assert [text_of((await read(stream))[0]) for stream in streams] == ["one", "two"]


async def test_no_turn_fits() -> None:
    played = engine({"when": "weather", "steps": ["a"]})
    stream = submit(played, chat("user\nhello"))
    steps, failure = await read(stream)
    assert steps == []
    assert failure == r"no turn of the script matches 'user\nhello<|im_end|>\n'"
    assert played.running == 0
    assert await answer(played, "the weather") == "a"  # the engine lives


async def test_a_long_prompt_is_not_shown_whole() -> None:
    _, failure = await read(submit(engine({"when": "b", "steps": []}), "a" * 10_000))
    assert failure is not None and len(failure) < 300


async def test_used_up_turns_are_no_match() -> None:
    played = engine({"times": 1, "steps": ["a"]})
    assert await answer(played) == "a"
    assert "no turn of the script matches" in await answer(played)


@pytest.mark.parametrize(
    ("marker", "text", "block"),
    [
        ("<|im_start|>", "", ""),
        ("<|im_start|>", "no marker", "no marker"),
        ("<|im_start|>", "head<|im_start|>tail", "head"),
        ("<|im_start|>", "head<|im_start|>block<|im_start|>", "block"),
        ("<|im_start|>", "<|im_start|>a<|im_start|>b<|im_start|>c", "b"),
        ("[INST]", "", ""),
        ("[INST]", "no marker", "no marker"),
        ("[INST]", "head[INST]tail", "head"),
        ("[INST]", "head[INST]block[INST]", "block"),
        ("[INST]", "[INST]a[INST]b[INST]c", "b"),
    ],
)
def test_the_newest_block(marker: str, text: str, block: str) -> None:
    tokenizer = ByteTokenizer(CHATML)
    assert newest_block(tokenizer.encode(text, control=True), marker, tokenizer) == block


def test_a_spelled_out_marker_is_text() -> None:
    tokenizer = ByteTokenizer(CHATML)
    marker = tokenizer.encode("<|im_start|>", control=True)
    said = tokenizer.encode("I say <|im_start|> to you", control=False)
    assert newest_block([*marker, *said, *marker], "<|im_start|>", tokenizer) == "I say <|im_start|> to you"


async def test_another_marker() -> None:
    played = engine({"when": "^a$", "steps": ["yes"]}, {"steps": ["no"]}, message_marker="[INST]")
    assert [await answer(played, text) for text in ("x[INST]a[INST]", "a[INST]x[INST]")] == ["yes", "no"]


# Limits: one byte is one token, so every one of them can be reached exactly

STEPS = ["ab", "c", "def"]
TEXT = "abcdef"


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("limit", range(1, 8))
async def test_max_tokens_cuts_at_every_token(limit: int, waits: bool) -> None:
    steps = [step for text in STEPS for step in ([text, {"wait_ms": 0}] if waits else [text])]
    played, _ = await read(submit(engine({"steps": steps}), max_tokens=limit))
    assert text_of(played) == TEXT[:limit]
    assert [step.finish for step in played[:-1]] == [None] * (len(played) - 1)
    assert played[-1].finish is (Finish.LENGTH if limit <= len(TEXT) else Finish.STOP)


@pytest.mark.parametrize("room", range(1, 8))
async def test_the_context_is_a_limit(room: int) -> None:
    steps, _ = await read(submit(engine({"steps": STEPS}, context_length=10 + room), "0123456789"))
    assert text_of(steps) == TEXT[:room]
    assert steps[-1].finish is (Finish.LENGTH if room <= len(TEXT) else Finish.STOP)


@pytest.mark.parametrize(("max_tokens", "room", "expected"), [(2, 4, "ab"), (4, 2, "ab"), (3, 3, "abc")])
async def test_the_smaller_limit_counts(max_tokens: int, room: int, expected: str) -> None:
    played = engine({"steps": STEPS}, context_length=10 + room)
    assert await answer(played, "0123456789", max_tokens=max_tokens) == expected


@pytest.mark.parametrize("limit", range(1, 8))
async def test_the_limit_counts_over_repetitions(limit: int) -> None:
    steps, _ = await read(submit(engine({"steps": ["ab", "c"], "repeat": 1000}), max_tokens=limit))
    assert text_of(steps) == "abcabcabc"[:limit]
    assert steps[-1].finish is Finish.LENGTH


async def test_nothing_is_played_past_the_limit() -> None:
    sleeper = Sleeper()
    played = engine({"steps": ["ab", {"wait_ms": 5}, {"fail": "never"}]}, sleep=sleeper)
    assert await answer(played, max_tokens=2) == "ab"
    assert (sleeper.asked, played.running) == ([], 0)


@pytest.mark.parametrize("length", [10, 11, 500])
async def test_a_prompt_that_fills_the_context_fails(length: int) -> None:
    played = engine({"steps": ["a"], "times": 1}, context_length=10)
    assert "no room in the context" in await answer(played, "x" * length)
    assert await answer(played, "x" * 9) == "a"  # the turn was not used up


# Failure, hanging, cancelling: at every step


def paused(count: int, *, then: Any = None) -> list[Any]:
    """Steps "0", "1", ... with a pause before each; `then` follows the last one."""
    steps = [step for n in range(count) for step in ({"wait_ms": 1}, str(n))]
    return steps if then is None else [*steps, then]


@pytest.mark.parametrize("n", range(6))
async def test_fail_at_every_step(n: int) -> None:
    sleeper = Sleeper()
    played = engine({"steps": [*paused(n, then={"fail": "device lost"}), "never"]}, sleep=sleeper)
    stream = submit(played)
    for _ in range(n + 1):
        await sleeper.wake()
    assert played.running == 0
    steps, failure = await read(stream)
    assert pieces(steps) == [str(k) for k in range(n)]
    assert failure == "device lost"


@pytest.mark.parametrize("n", range(6))
async def test_hang_at_every_step_until_cancelled(n: int) -> None:
    sleeper = Sleeper()
    played = engine({"steps": [*paused(n, then={"hang": True}), "never"]}, sleep=sleeper)
    stream = submit(played)
    for _ in range(n + 3):
        await sleeper.wake()
    assert pieces(stream.ready()) == [str(k) for k in range(n)]
    assert (stream.closed, played.running) == (False, 1)
    stream.cancel()
    assert played.running == 0
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("n", range(6))
async def test_cancel_in_every_pause(n: int) -> None:
    sleeper = Sleeper()
    played = engine({"steps": [{"prefill_ms": 1}, *paused(5)]}, sleep=sleeper)
    stream = submit(played)
    for _ in range(n):
        await sleeper.wake()
    assert played.running == 1
    stream.cancel()
    stream.cancel()
    assert (played.running, stream.closed, stream.ready()) == (0, True, [])
    await settle()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await sleeper.wake()
    assert stream.ready() == []


async def test_cancel_before_anything_was_played() -> None:
    sleeper = Sleeper()
    played = engine({"steps": paused(2)}, sleep=sleeper)
    submit(played).cancel()
    assert played.running == 0
    await settle()
    assert sleeper.asked == []


async def test_cancelling_one_leaves_the_others() -> None:
    sleeper = Sleeper()
    played = engine({"steps": paused(2)}, sleep=sleeper)
    streams = [submit(played) for _ in range(5)]
    await settle()
    streams[2].cancel()
    assert played.running == 4
    for _ in range(2):
        await sleeper.wake()
    assert played.running == 0
    assert [text_of(stream.ready()) for stream in streams] == ["01", "01", "", "01", "01"]


async def test_aclose_fails_what_runs_and_keeps_what_was_said() -> None:
    played = engine({"when": "hang", "steps": ["x", {"hang": True}]}, {"steps": ["done"]})
    hanging, done = submit(played, "hang"), submit(played)
    await settle()
    await played.aclose()
    assert played.running == 0
    assert await read(hanging) == ([Step((120,))], "the engine was closed")
    assert text_of((await read(done))[0]) == "done"
    await played.aclose()
    assert await read(submit(played)) == ([], "the engine is closed")


async def test_running_ends_before_the_reader_sees_the_end() -> None:
    played = engine({"steps": ["a"]})
    stream = submit(played)
    assert played.running == 1
    await stream.take()
    assert played.running == 0


# The vocabulary


def test_bytes_are_tokens() -> None:
    tokenizer = ByteTokenizer(CHATML)
    assert (tokenizer.size, tokenizer.bos) == (258, None)
    assert tokenizer.control == {256: "<|im_start|>", 257: "<|im_end|>"}
    assert tokenizer.encode("é\n", control=True) == [0xC3, 0xA9, 10]
    assert tokenizer.piece(0xC3) == b"\xc3"
    assert tokenizer.piece(257) == b"<|im_end|>"


def test_control_tokens_only_where_they_are_wanted() -> None:
    tokenizer = ByteTokenizer(CHATML)
    text = "a<|im_end|><|im_start|>b<|im_"
    assert tokenizer.encode(text, control=True) == [97, 257, 256, 98, *b"<|im_"]
    assert tokenizer.encode(text, control=False) == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text, control=True)) == text


def test_the_longest_spelling_wins_and_is_no_pattern() -> None:
    tokenizer = ByteTokenizer(["<a", "<a>", "(.)"])
    assert tokenizer.encode("<a><a(.)(x)", control=True) == [257, 256, 258, *b"(x)"]


def test_no_text_makes_encode_raise() -> None:
    for tokenizer in (ByteTokenizer(), ByteTokenizer(CHATML)):
        for control in (True, False):
            assert tokenizer.encode("\ud800\udfff\x00", control=control) == list(b"\xed\xa0\x80\xed\xbf\xbf\x00")
            assert tokenizer.encode("", control=control) == []


def constrained(engine: ScriptedEngine, *texts: str, max_tokens: int | None = None) -> StepStream:
    constraint = OneOf([text.encode() for text in texts], engine.tokenizer.size)
    sampling = Sampling(constraint=constraint)
    prompt = engine.tokenizer.encode("hi", control=True)
    return engine.submit(Generation(id=next(IDS), prompt=prompt, max_tokens=max_tokens, sampling=sampling))


async def test_a_constraint_that_the_script_obeys_changes_nothing() -> None:
    steps, failure = await read(constrained(engine({"steps": ["He", "llo"]}), "Hello", "Help"))
    assert (pieces(steps), failure) == (["He", "llo"], None)


async def test_a_script_that_breaks_the_constraint_fails_at_that_token() -> None:
    steps, failure = await read(constrained(engine({"steps": ["He", "lpo", "!"]}), "Hello", "Help"))
    assert pieces(steps) == ["He"]
    assert failure == "token 5, b'o', breaks the constraint"


async def test_a_script_that_ends_too_soon_fails() -> None:
    steps, failure = await read(constrained(engine({"steps": ["He", "l"]}), "Hello", "Help"))
    assert pieces(steps) == ["He"]
    assert failure == "the constraint does not let the output end behind token 3"


async def test_a_limit_ends_a_script_wherever_it_is() -> None:
    steps, failure = await read(constrained(engine({"steps": ["He", "llo"]}), "Hello", max_tokens=3))
    assert (pieces(steps), failure) == (["He", "l"], None)
    assert steps[-1].finish is Finish.LENGTH
