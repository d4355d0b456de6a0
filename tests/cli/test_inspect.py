"""`antiphon inspect`: what a model file tells of itself, read without its weights."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.cli.inspect import Report, lines_of, report_on, sentences
from antiphon.engine.llama import describe
from antiphon.text.capabilities import CallForm, Capabilities, TextWithCalls
from tests.cli.processes import antiphon, refused
from tests.text import template_styles as styles
from tests.tiny_model import Tiny, write_tiny_model


def report(path: Path, tiny: Tiny | None = None) -> Report:
    return report_on(describe(write_tiny_model(path / "tiny.gguf", tiny)), datetime.now)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(
        tmp_path_factory.mktemp("model") / "tiny.gguf", Tiny(chat_template=styles.QWEN, context=32768)
    )


def test_a_report_for_programs(qwen: Path) -> None:
    found: dict[str, Any] = json.loads(antiphon("inspect", str(qwen), "--json").stdout)
    assert (found["name"], found["path"], found["size"]) == ("Tiny", str(qwen), qwen.stat().st_size)
    assert (found["dialect"], found["dialect_origin"]) == ("hermes", "told")
    assert (found["trained_context"], found["served_context"]) == (32768, 8192)
    assert (found["bos_token"], found["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert found["control_tokens"] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert "<|im_end|>" in found["end_tokens"]
    assert found["capabilities"]["thinking_switch"] == "enable_thinking"
    assert '"name": "get_weather"' in found["sample_prompt"]
    assert found["sample_tokens"] > 100
    assert found["refusal"] is None


def test_a_report_for_people(qwen: Path) -> None:
    shown = antiphon("inspect", str(qwen))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "  dialect         hermes, told by the chat template\n" in shown.stdout
    assert "  context         8,192 tokens by default; 32,768 as trained\n" in shown.stdout
    assert "  bos, eos        <|endoftext|>, <|im_end|>\n" in shown.stdout
    assert "  * Tools are shown by the template.\n" in shown.stdout
    assert "  * Thinking can be switched on and off (enable_thinking).\n" in shown.stdout
    assert "  | <|im_start|>user\n  | What is the weather in Paris?<|im_end|>\n" in shown.stdout


def test_a_model_without_a_template(tmp_path: Path) -> None:
    found = report(tmp_path, Tiny(chat_template=None))
    text = "\n".join(lines_of(found))
    assert "hermes, taught by Antiphon" in text
    assert "none: ChatML is used" in text
    assert "You can call functions." in text


def test_a_template_that_refuses_the_sample(tmp_path: Path) -> None:
    found = report(tmp_path, Tiny(chat_template="{{ raise_exception('Never.\\nEver.') }}"))
    assert found.sample_prompt is None
    assert list(lines_of(found))[-1] == "\nThe template refuses a conversation with a tool: Never. Ever."


def test_nothing_of_a_stranger_s_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    tiny = Tiny(name="\x1b[2JTiny", chat_template="{{ messages[0].content }}\x1b]0;title\x07\ttab")
    text = "\n".join(lines_of(report(tmp_path, tiny)))
    assert "\x1b" not in text and "\x07" not in text
    assert "\ttab" in text


def test_a_file_that_does_not_tell_its_context(tmp_path: Path) -> None:
    found = replace(report(tmp_path), trained_context=0)
    assert "  context         1,024 tokens by default; not told by the file" in list(lines_of(found))


ABLE = Capabilities()
WORDS = [
    (ABLE, "System messages may stand anywhere."),
    (replace(ABLE, several_leading_systems=False), "those at the beginning are joined"),
    (replace(ABLE, later_systems=False), "later ones join it"),
    (replace(ABLE, system=False), "There is no system role"),
    (replace(ABLE, alternates=True), "must take turns"),
    (replace(ABLE, user_first=True), "The user must begin"),
    (replace(ABLE, content_parts=True), "a list of parts"),
    (replace(ABLE, tools=False), "Tools are described in the system text."),
    (ABLE, "writes their arguments anew"),
    (replace(ABLE, calls=CallForm.TEXT), "as the model wrote them"),
    (replace(ABLE, calls=CallForm.NONE), "Earlier calls are written out"),
    (replace(ABLE, results=False), "into a user message"),
    (replace(ABLE, several_calls=False), "Each of several calls"),
    (ABLE, "share a message"),
    (replace(ABLE, text_with_calls=TextWithCalls.APART), "gets a message of its own."),
    (replace(ABLE, text_with_calls=TextWithCalls.TWO_TURNS), "a placeholder of the user's"),
    (ABLE, "given to the template (reasoning_content)"),
    (replace(ABLE, reasoning_key=None), "Thinking in a running tool loop is written out"),
    (replace(ABLE, effort_switch="effort", efforts=("low", "high")), "low, high (effort)"),
]


@pytest.mark.parametrize(("able", "words"), WORDS)
def test_what_a_template_can_take_in_words(able: Capabilities, words: str) -> None:
    assert len([sentence for sentence in sentences(able) if words in sentence]) == 1


def test_every_ability_changes_the_words() -> None:
    usual = list(sentences(ABLE))
    assert [words for able, words in WORDS if able != ABLE and list(sentences(able)) == usual] == []


def test_errors_are_one_line(tmp_path: Path) -> None:
    assert refused(antiphon("inspect", str(tmp_path / "none.gguf")), 1).startswith("no such file: ")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(write_tiny_model(tmp_path / "whole.gguf").read_bytes()[:-1000])
    assert "is cut short" in refused(antiphon("inspect", str(cut)), 1)
    broken = write_tiny_model(tmp_path / "broken.gguf", Tiny(chat_template="{% if %}"))
    message = refused(antiphon("inspect", str(broken)), 1)
    assert message.startswith("the model's chat template cannot be used: The chat template is not valid Jinja")
