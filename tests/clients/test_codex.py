"""The real Codex CLI: what a model says, in the markers of its family, changes files, and Codex tells it so.

Codex offers its tools by the model's name. A name that it does not know gets functions and a namespace; `gpt-5.5` also
a custom tool with a grammar, `apply_patch`; later ones get no `tools` at all, but an input item with namespaces, and in
one of them a custom tool for JavaScript. So the served model goes by such a name. Its chat template is a real one.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.clients.codex import Codex
from tests.text.real_templates import real_templates

pytestmark = pytest.mark.timeout(300)  # the first run on a machine downloads 400 MB

CHATML = ("<|im_start|>", "<|im_end|>")
HARMONY = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
THOUGHT = "A file must change."


def json_call(name: str, arguments: dict[str, str]) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<think>\n{THOUGHT}\n</think>\n\n<tool_call>\n{call}\n</tool_call>"


def xml_call(name: str, arguments: dict[str, str]) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    # Its template has opened the thinking already.
    return f"{THOUGHT}\n</think>\n\n<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def pairs_call(name: str, arguments: dict[str, str]) -> str:
    pairs = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in arguments.items())
    return f"\n<think>{THOUGHT}</think>\n<tool_call>{name}\n{pairs}</tool_call>"


def channels_call(name: str, arguments: dict[str, str]) -> str:
    # `<|call|>` ends the generation, so engines do not show it.
    thought = f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{thought}{header}{json.dumps(arguments, ensure_ascii=False)}"


class Family(NamedTuple):
    """How models of a template write: the call of a tool behind a thought, and the `answer` that ends the work."""

    template: str
    control: tuple[str, ...]
    dialect: str  # the one that the template tells of
    call: Callable[[str, dict[str, str]], str]
    answer: str = "{}"

    @property
    def model(self) -> dict[str, Any]:
        """The model, for a script."""
        return {"chat_template": real_templates()[self.template], "special_tokens": self.control}

    def turns(self, name: str, arguments: dict[str, str]) -> list[dict[str, Any]]:
        """A turn with a call, in pieces that cut it wherever they fall, and one that ends the work."""
        call, answer = self.call(name, arguments), self.answer.format("It is done.")
        return [{"times": 1, "steps": _pieces(call, self.control)}, {"steps": _pieces(answer, self.control)}]


def _pieces(text: str, control: tuple[str, ...]) -> list[str]:
    """Up to eleven characters each; a control token is a piece of its own."""
    token = "|".join(map(re.escape, control))
    return re.findall(f"{token}|(?:(?!{token}).){{1,11}}", text, re.DOTALL)


FAMILIES = [
    Family("Qwen-Qwen3-0.6B", CHATML, "hermes", json_call, "<think>\n\n</think>\n\n{}"),
    Family("Qwen3.5-4B", CHATML, "qwen3-coder", xml_call, "</think>\n\n{}"),
    Family("GLM-4.6", ("<|user|>", "<|assistant|>", "<|observation|>"), "glm-4.x", pairs_call),
    Family("openai-gpt-oss-120b", HARMONY, "gpt-oss", channels_call, "<|channel|>final<|message|>{}"),
]
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.dialect)


@pytest.fixture
def codex(tmp_path: Path) -> Iterator[Codex]:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        yield Codex(tmp_path, outside)


def check_told(codex: Codex, what: str) -> None:
    """The model saw what came of its call, and why it had made it: Codex keeps nothing on the server."""
    first, second = codex.prompts
    assert what in second and what not in first
    assert THOUGHT in second


@each_family
async def test_its_shell_tool_writes_a_file(codex: Codex, family: Family) -> None:
    command = "printf '%s\\n' 'one' '\"2\" — zwei' > note.txt"
    answer = await codex.run("unknown-to-codex", family.model, family.turns("exec_command", {"cmd": command}))
    assert (codex.work / "note.txt").read_text() == 'one\n"2" — zwei\n'
    assert answer == "It is done."
    check_told(codex, "Process exited with code 0")
    assert "multi_agent_v1__spawn_agent" in codex.prompts[0]


PATCH = """*** Begin Patch
*** Update File: note.txt
@@
 one
-two
+2 "two" — zwei \\n
*** Add File: more.txt
+new
*** End Patch"""


@each_family
async def test_its_freeform_patch_changes_a_file(codex: Codex, family: Family) -> None:
    (codex.work / "note.txt").write_text("one\ntwo\nthree\n")
    answer = await codex.run("gpt-5.5", family.model, family.turns("apply_patch", {"input": PATCH}))
    check_patched(codex)
    assert answer == "It is done."
    check_told(codex, "M note.txt")
    assert "change_context" in codex.prompts[0], "the model is told the grammar"


@each_family
async def test_javascript_of_a_tool_in_a_namespace_patches_a_file(codex: Codex, family: Family) -> None:
    (codex.work / "note.txt").write_text("one\ntwo\nthree\n")
    source = f"await tools.apply_patch({json.dumps(PATCH)});\ntext('patched' + 'it');"
    answer = await codex.run("gpt-6.2-sol", family.model, family.turns("functions__exec", {"input": source}))
    check_patched(codex)
    assert answer == "It is done."
    check_told(codex, "patchedit")


def check_patched(codex: Codex) -> None:
    assert (codex.work / "note.txt").read_text() == 'one\n2 "two" — zwei \\n\nthree\n'
    assert (codex.work / "more.txt").read_text() == "new\n"


@each_family
async def test_a_function_of_a_namespace_is_called(codex: Codex, family: Family) -> None:
    answer = await codex.run("gpt-6.2-sol", family.model, family.turns("collaboration__list_agents", {}))
    assert answer == "It is done."
    check_told(codex, "agent_status")
