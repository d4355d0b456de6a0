"""The scripted engine's file: every key, every fault and the place it is reported at."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.engine.base import Finish, Step
from antiphon.engine.script_file import (
    DAY_MS,
    MAX_CONTEXT,
    MAX_REPEAT,
    MAX_SCRIPT_BYTES,
    Emit,
    Fail,
    Hang,
    Pause,
    Script,
    ScriptError,
    ScriptFile,
    StepFile,
    TurnFile,
    load_script,
    parse_script,
)


def parse(*turns: Any, **keys: Any) -> Script:
    return parse_script(msgspec.json.encode({"turns": turns, **keys}))


def emit(*texts: str | bytes, finish: Finish | None = None) -> Emit:
    tokens = [tuple(text.encode() if isinstance(text, str) else text) for text in texts]
    steps = [Step(t) for t in tokens[:-1]] + [Step(tokens[-1], finish)]
    return Emit(tuple(steps), sum(map(len, tokens)))


def test_every_key_of_the_file() -> None:
    script = parse(
        {"steps": ["a"]},
        model="m",
        context_length=77,
        dialect="hermes",
        special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template="{{ messages }}",
        message_marker="[INST]",
    )
    assert (script.info.name, script.info.context_length, script.info.dialect) == ("m", 77, "hermes")
    assert script.info.chat_template == "{{ messages }}"
    assert script.tokenizer.control == {256: "<|im_start|>", 257: "<|im_end|>"}
    assert script.message_marker == "[INST]"


def test_what_is_left_out() -> None:
    script = parse({"steps": ["a"]})
    assert (script.info.name, script.info.context_length, script.info.dialect) == ("scripted-1", 32768, "plain")
    assert script.info.chat_template is None
    assert script.tokenizer.size == 256
    assert script.message_marker == "<|im_start|>"
    [turn] = script.turns
    assert (turn.when, turn.whole_prompt, turn.times, turn.repeat, turn.prefill) == (None, False, None, 1, 0.0)
    assert turn.closing == (emit("a", finish=Finish.STOP),)


@pytest.mark.parametrize("key", ["chat_template", "dialect"])
def test_null_is_absent_at_the_top(key: str) -> None:
    assert parse({"steps": []}, **{key: None}).info == parse({"steps": []}).info


@pytest.mark.parametrize("key", ["when", "scope", "times"])
def test_null_is_absent_in_a_turn(key: str) -> None:
    assert parse({"steps": [], key: None}).turns == parse({"steps": []}).turns


def test_every_key_of_a_turn() -> None:
    [turn] = parse({"when": "Par.s", "scope": "prompt", "times": 2, "repeat": 3, "finish": "length", "steps": []}).turns
    assert turn.when is not None
    assert turn.when.search("in Paris") and not turn.when.search("in Pars")
    assert (turn.whole_prompt, turn.times, turn.repeat) == (True, 2, 3)
    assert turn.closing == (Emit((Step((), Finish.LENGTH),), 0),)


WAIT = {"wait_ms": 200}
STOP = emit("", finish=Finish.STOP)  # a step without tokens that only says that the turn ended


@pytest.mark.parametrize(
    ("steps", "repeated", "closing"),
    [
        ([], [], [STOP]),
        (["ab"], [emit("ab")], [emit("ab", finish=Finish.STOP)]),
        (["a", "bc"], [emit("a", "bc")], [emit("a", "bc", finish=Finish.STOP)]),
        (["é"], [emit(b"\xc3\xa9")], [emit(b"\xc3\xa9", finish=Finish.STOP)]),
        ([{"hex": "e2"}, {"hex": "AC"}], [emit(b"\xe2", b"\xac")], [emit(b"\xe2", b"\xac", finish=Finish.STOP)]),
        (["a", WAIT, "b"], [emit("a"), Pause(0.2), emit("b")], [emit("a"), Pause(0.2), emit("b", finish=Finish.STOP)]),
        (["a", {"wait_ms": 0.5}], [emit("a"), Pause(0.0005)], [emit("a"), Pause(0.0005), STOP]),
        (["a", {"fail": "lost"}], [emit("a"), Fail("lost")], [emit("a"), Fail("lost"), STOP]),
        (["a", {"hang": True}], [emit("a"), Hang()], [emit("a"), Hang(), STOP]),
    ],
)
def test_steps(steps: list[Any], repeated: list[Any], closing: list[Any]) -> None:
    [turn] = parse({"steps": steps}).turns
    assert list(turn.repeated) == repeated
    assert list(turn.closing) == closing


def test_prefill_is_apart_from_the_steps() -> None:
    [turn] = parse({"steps": [{"prefill_ms": 1500}, "a"]}).turns
    assert turn.prefill == 1.5
    assert turn.repeated == (emit("a"),)


def test_a_special_token_in_a_step_is_one_token() -> None:
    [turn] = parse({"steps": ["x<|im_end|>y"]}, special_tokens=["<|im_start|>", "<|im_end|>"]).turns
    assert turn.repeated == (Emit((Step((ord("x"), 257, ord("y"))),), 3),)


# The place and a word of the fault, for everything that is refused.
FAULTS: list[tuple[str, str, str]] = [
    ("", "not JSON", "truncated"),
    ('{"turns": [}', "not JSON", "malformed"),
    ('{"turns": [{"steps": ["\xff"]}]}', "not JSON", "UTF-8"),
    ("[" * 100_000, "the file", "object"),
    ('{"turns": [{"steps": ' + "[" * 100_000, "turns[0].steps[0]", "array"),
    ("[]", "the file", "array"),
    ("{}", "turns", "missing"),
    ('{"turns": []}', "turns", "length >= 1"),
    ('{"turns": {}}', "turns", "object"),
    ('{"turns": [{"steps": []}], "modle": "x"}', "modle", "unknown key"),
    ('{"turns": [{"steps": []}], "a\\nb": 1}', "a b", "unknown key"),
    ('{"turns": [{"steps": []}], "model": 1}', "model", "int"),
    ('{"turns": [{"steps": []}], "model": ""}', "model", "length >= 1"),
    ('{"turns": [{"steps": []}], "context_length": 1}', "context_length", ">= 2"),
    ('{"turns": [{"steps": []}], "context_length": 2147483648}', "context_length", str(MAX_CONTEXT)),
    ('{"turns": [{"steps": []}], "context_length": true}', "context_length", "bool"),
    ('{"turns": [{"steps": []}], "dialect": ""}', "dialect", "length >= 1"),
    ('{"turns": [{"steps": []}], "special_tokens": null}', "special_tokens", "null"),
    ('{"turns": [{"steps": []}], "special_tokens": ["a", ""]}', "special_tokens[1]", "length >= 1"),
    ('{"turns": [{"steps": []}], "special_tokens": ["a", "b", "a"]}', "special_tokens[2]", "twice"),
    ('{"turns": [{"steps": []}], "chat_template": 7}', "chat_template", "int"),
    ('{"turns": [{"steps": []}], "message_marker": ""}', "message_marker", "length >= 1"),
    ('{"turns": [7]}', "turns[0]", "int"),
    ('{"turns": [{"steps": []}, {}]}', "turns[1].steps", "missing"),
    ('{"turns": [{"steps": "a"}]}', "turns[0].steps", "str"),
    ('{"turns": [{"steps": [], "step": []}]}', "turns[0].step", "unknown key"),
    ('{"turns": [{"steps": [], "when": 1}]}', "turns[0].when", "int"),
    ('{"turns": [{"steps": []}, {"steps": [], "when": "(a"}]}', "turns[1].when", "regular expression"),
    ('{"turns": [{"steps": [], "when": "(\\na"}]}', "turns[0].when", "regular expression"),
    ('{"turns": [{"steps": [], "when": "a{99999999999}"}]}', "turns[0].when", "regular expression"),
    ('{"turns": [{"steps": [], "scope": "all"}]}', "turns[0].scope", "all"),
    ('{"turns": [{"steps": [], "times": 0}]}', "turns[0].times", ">= 1"),
    ('{"turns": [{"steps": [], "repeat": 0}]}', "turns[0].repeat", ">= 1"),
    (f'{{"turns": [{{"steps": [], "repeat": {MAX_REPEAT + 1}}}]}}', "turns[0].repeat", str(MAX_REPEAT)),
    ('{"turns": [{"steps": [], "repeat": 1.5}]}', "turns[0].repeat", "float"),
    ('{"turns": [{"steps": [], "finish": "eos"}]}', "turns[0].finish", "eos"),
    ('{"turns": [{"steps": ["a", ""]}]}', "turns[0].steps[1]", "length >= 1"),
    ('{"turns": [{"steps": [1]}]}', "turns[0].steps[0]", "int"),
    ('{"turns": [{"steps": [null]}]}', "turns[0].steps[0]", "null"),
    ('{"turns": [{"steps": [{}]}]}', "turns[0].steps[0]", "exactly one"),
    ('{"turns": [{"steps": [{"hang": true, "wait_ms": 1}]}]}', "turns[0].steps[0]", "exactly one"),
    ('{"turns": [{"steps": [{"prefill_ms": 1, "wait_ms": 1}]}]}', "turns[0].steps[0]", "exactly one"),
    ('{"turns": [{"steps": [{"wait": 1}]}]}', "turns[0].steps[0].wait", "unknown key"),
    ('{"turns": [{"steps": []}, {"steps": []}, {"steps": [{"wait_ms": -1}]}]}', "turns[2].steps[0].wait_ms", ">= 0"),
    ('{"turns": [{"steps": [{"wait_ms": "1"}]}]}', "turns[0].steps[0].wait_ms", "str"),
    ('{"turns": [{"steps": [{"wait_ms": 1e400}]}]}', "turns[0].steps[0].wait_ms", "range"),
    (f'{{"turns": [{{"steps": [{{"wait_ms": {DAY_MS + 1}}}]}}]}}', "turns[0].steps[0].wait_ms", "<="),
    ('{"turns": [{"steps": [{"prefill_ms": null}]}]}', "turns[0].steps[0].prefill_ms", "null"),
    ('{"turns": [{"steps": ["a", {"prefill_ms": 1}]}]}', "turns[0].steps[1].prefill_ms", "first"),
    ('{"turns": [{"steps": [{"prefill_ms": 1}, {"prefill_ms": 1}]}]}', "turns[0].steps[1].prefill_ms", "first"),
    ('{"turns": [{"steps": [{"prefill_ms": 1}, {}]}]}', "turns[0].steps[1]", "exactly one"),
    ('{"turns": [{"steps": [{"hex": ""}]}]}', "turns[0].steps[0].hex", "regex"),
    ('{"turns": [{"steps": [{"hex": "abc"}]}]}', "turns[0].steps[0].hex", "regex"),
    ('{"turns": [{"steps": [{"hex": "zz"}]}]}', "turns[0].steps[0].hex", "regex"),
    ('{"turns": [{"steps": [{"hex": "ab\\n"}]}]}', "turns[0].steps[0].hex", "regex"),
    ('{"turns": [{"steps": [{"hex": "ab cd"}]}]}', "turns[0].steps[0].hex", "regex"),
    ('{"turns": [{"steps": [{"fail": ""}]}]}', "turns[0].steps[0].fail", "length >= 1"),
    ('{"turns": [{"steps": [{"fail": true}]}]}', "turns[0].steps[0].fail", "bool"),
    ('{"turns": [{"steps": [{"hang": false}]}]}', "turns[0].steps[0].hang", "true"),
    ('{"turns": [{"steps": [{"hang": 1}]}]}', "turns[0].steps[0].hang", "int"),
]


@pytest.mark.parametrize(
    ("text", "place", "word"), FAULTS, ids=[f"{n}-{place}" for n, (_, place, _) in enumerate(FAULTS)]
)
def test_faults_are_named_with_their_place(text: str, place: str, word: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(text.encode("latin-1"))
    message = str(caught.value)
    assert message.startswith(f"{place}: ")
    assert word in message
    assert "\n" not in message


def test_the_example_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scripted.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    script = parse_script(example.encode())
    assert len(script.turns) == 5
    keys = {key for kind in (ScriptFile, TurnFile, StepFile) for key in kind.__struct_fields__}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_a_file_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"turns": [{"steps": ["é"]}]}', encoding="utf-8")
    assert load_script(path).turns == parse({"steps": ["é"]}).turns


def test_a_fault_on_disk_names_the_file_first(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('{"turns": []}')
    with pytest.raises(ScriptError, match=r"script\.json: turns: "):
        load_script(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(ScriptError, match="cannot be read") as caught:
            load_script(path)
        assert str(caught.value).startswith(f"{path}: ")


def test_a_file_over_the_limit_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    with path.open("wb") as file:
        file.truncate(MAX_SCRIPT_BYTES + 1)
    with pytest.raises(ScriptError, match=f"larger than {MAX_SCRIPT_BYTES} bytes"):
        load_script(path)
