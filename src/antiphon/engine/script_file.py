"""The scripted engine's file: what a model will say, in which pieces, and when it fails.

Everything is checked here, at load: `load_script` either returns a `Script` that can be played without a further look
at the file, or raises a `ScriptError` that names the place of the fault, such as `turns[2].steps[0].wait_ms`.
The types that end in `File` are the JSON as it is written; `Turn` and `Script` are what is played.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from antiphon.engine.base import Finish, ModelInfo, Step
from antiphon.engine.byte_tokenizer import ByteTokenizer

# A script is read whole. 64 MiB is far above any written by hand and far below what would hurt a machine.
MAX_SCRIPT_BYTES = 64 * 2**20
# A longer pause is a mistake in the unit; `hang` is the word for "for ever".
DAY_MS = 86_400_000.0
# A repetition without tokens is not bounded by the context, so it is bounded here.
MAX_REPEAT = 1_000_000
MAX_CONTEXT = 2**31 - 1

Milliseconds = Annotated[float, Meta(ge=0, le=DAY_MS)]
NonEmpty = Annotated[str, Meta(min_length=1)]
HexBytes = Annotated[str, Meta(pattern=r"^(?:[0-9a-fA-F]{2})+\Z")]


class ScriptError(ValueError):
    """The file cannot be played. The message is one line: the file, the path inside it, the fault."""


class StepFile(Struct, forbid_unknown_fields=True):
    """A step that is not a string: exactly one of these keys."""

    hex: HexBytes | UnsetType = UNSET
    wait_ms: Milliseconds | UnsetType = UNSET
    prefill_ms: Milliseconds | UnsetType = UNSET
    fail: NonEmpty | UnsetType = UNSET
    hang: bool | UnsetType = UNSET


class TurnFile(Struct, forbid_unknown_fields=True):
    steps: list[NonEmpty | StepFile]
    when: str | None = None
    scope: Literal["prompt"] | None = None
    times: Annotated[int, Meta(ge=1)] | None = None
    repeat: Annotated[int, Meta(ge=1, le=MAX_REPEAT)] = 1
    finish: Literal["stop", "length"] = "stop"


class ScriptFile(Struct, forbid_unknown_fields=True):
    turns: Annotated[list[TurnFile], Meta(min_length=1)]
    model: NonEmpty = "scripted-1"
    context_length: Annotated[int, Meta(ge=2, le=MAX_CONTEXT)] = 32768
    dialect: NonEmpty | None = None
    special_tokens: list[NonEmpty] = []
    chat_template: NonEmpty | None = None
    message_marker: NonEmpty = "<|im_start|>"


class Emit(Struct, frozen=True):
    """Steps without a pause between them, which the reader gets at once. `tokens` is their number together."""

    steps: tuple[Step, ...]
    tokens: int


class Pause(Struct, frozen=True):
    seconds: float


class Fail(Struct, frozen=True):
    message: str


class Hang(Struct, frozen=True):
    """Nothing more happens until the sequence is cancelled."""


Action = Emit | Pause | Fail | Hang


class Turn(Struct, frozen=True, kw_only=True):
    """One answer. All streams that play it share these objects."""

    when: re.Pattern[str] | None  # None: always
    whole_prompt: bool  # where `when` is searched: the whole prompt, or its newest block only
    times: int | None  # how often the turn may be used; None: for ever
    prefill: float  # seconds before anything else, once
    repeated: tuple[Action, ...]  # played `repeat` - 1 times
    repeat: int
    closing: tuple[Action, ...]  # the last round: `repeated`, with the finish on its last step


class Script(Struct, frozen=True, kw_only=True):
    info: ModelInfo
    tokenizer: ByteTokenizer
    message_marker: str
    turns: tuple[Turn, ...]


def load_script(path: Path) -> Script:
    """Reads and checks a script. Raises `ScriptError` for an unreadable file as for a wrong one."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ScriptError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return parse_script(data)
    except ScriptError as error:
        raise ScriptError(f"{path}: {error}") from error


def parse_script(data: bytes) -> Script:
    """As `load_script`, from the bytes of the file."""
    if len(data) > MAX_SCRIPT_BYTES:
        raise ScriptError(f"larger than {MAX_SCRIPT_BYTES} bytes")
    try:
        file = msgspec.json.decode(data, type=ScriptFile)
    except msgspec.ValidationError as error:
        raise ScriptError(_located(str(error))) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ScriptError(f"not JSON: {error}") from error
    _refuse_unusable_special_tokens(file.special_tokens)
    tokenizer = ByteTokenizer(file.special_tokens)
    info = ModelInfo(
        name=file.model,
        context_length=file.context_length,
        chat_template=file.chat_template,
        dialect=file.dialect or "plain",
        chooses=False,
    )
    turns = tuple(_turn(turn, f"turns[{index}]", tokenizer) for index, turn in enumerate(file.turns))
    return Script(info=info, tokenizer=tokenizer, message_marker=file.message_marker, turns=turns)


def _located(message: str) -> str:
    """msgspec's message with the path in front, and down to the key where a key is unknown or missing."""
    fault, _, path = " ".join(message.split()).partition(" - at `$")
    path = path.removesuffix("`").removeprefix(".")
    if key := re.fullmatch(r"Object (contains unknown|missing required) field `(.*)`", fault):
        path = f"{path}.{key[2]}".removeprefix(".")
        fault = "unknown key" if key[1] == "contains unknown" else "missing"
    return f"{path or 'the file'}: {fault}"


def _refuse_unusable_special_tokens(spellings: Sequence[str]) -> None:
    seen: set[str] = set()
    for index, spelling in enumerate(spellings):
        if spelling in seen:
            raise ScriptError(f"special_tokens[{index}]: stands twice in the list")
        seen.add(spelling)


def _turn(turn: TurnFile, path: str, tokenizer: ByteTokenizer) -> Turn:
    prefill = _prefill_seconds(turn.steps)
    first = 0 if prefill is None else 1
    steps = enumerate(turn.steps[first:], start=first)
    repeated = tuple(_joined([_action(step, f"{path}.steps[{index}]", tokenizer) for index, step in steps]))
    return Turn(
        when=_pattern(turn.when, f"{path}.when"),
        whole_prompt=turn.scope == "prompt",
        times=turn.times,
        prefill=prefill or 0.0,
        repeated=repeated,
        repeat=turn.repeat,
        closing=_closed(repeated, Finish(turn.finish)),
    )


def _pattern(source: str | None, path: str) -> re.Pattern[str] | None:
    if source is None:
        return None
    try:
        return re.compile(source)
    except re.error as error:
        raise ScriptError(f"{path}: bad regular expression: {error.msg}") from error
    except (OverflowError, RecursionError) as error:
        raise ScriptError(f"{path}: bad regular expression: too large") from error


def _prefill_seconds(steps: Sequence[str | StepFile]) -> float | None:
    first = steps[0] if steps else None
    if isinstance(first, StepFile) and _keys(first) == ["prefill_ms"]:
        return _seconds(first.prefill_ms)
    return None


def _keys(step: StepFile) -> list[str]:
    return [key for key in StepFile.__struct_fields__ if getattr(step, key) is not UNSET]


def _action(step: str | StepFile, path: str, tokenizer: ByteTokenizer) -> Action:
    if isinstance(step, str):
        return _emit(tokenizer.encode(step, control=True))
    keys = _keys(step)
    if len(keys) != 1:
        raise ScriptError(f"{path}: exactly one key of {', '.join(StepFile.__struct_fields__)} is needed")
    if isinstance(step.hex, str):
        return _emit(bytes.fromhex(step.hex))
    if isinstance(step.fail, str):
        return Fail(step.fail)
    if step.hang is True:
        return Hang()
    if step.hang is False:
        raise ScriptError(f"{path}.hang: can only be true")
    if keys == ["prefill_ms"]:
        raise ScriptError(f"{path}.prefill_ms: can only be the first step")
    return Pause(_seconds(step.wait_ms))


def _seconds(milliseconds: float | UnsetType) -> float:
    assert isinstance(milliseconds, float)
    return milliseconds / 1000


def _emit(tokens: Sequence[int]) -> Emit:
    return Emit((Step(tuple(tokens)),), len(tokens))


def _joined(actions: Sequence[Action]) -> Iterator[Action]:
    """The actions, with neighbouring steps made one `Emit`."""
    steps: list[Step] = []
    for action in actions:
        if isinstance(action, Emit):
            steps += action.steps
            continue
        if steps:
            yield _burst(steps)
            steps = []
        yield action
    if steps:
        yield _burst(steps)


def _burst(steps: Sequence[Step]) -> Emit:
    return Emit(tuple(steps), sum(len(step.tokens) for step in steps))


def _closed(actions: tuple[Action, ...], finish: Finish) -> tuple[Action, ...]:
    """The actions with `finish` on the last step; one without tokens is added where no step comes last."""
    if actions and isinstance(last := actions[-1], Emit):
        final = Step(last.steps[-1].tokens, finish)
        return (*actions[:-1], Emit((*last.steps[:-1], final), last.tokens))
    return (*actions, Emit((Step((), finish),), 0))
