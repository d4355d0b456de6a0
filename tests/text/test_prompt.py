"""What a client writes is text, never a control token, wherever it writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.text.messages import Message, ToolCall, ToolDefinition
from antiphon.text.prompt import (
    SENTINELS,
    WINDOW,
    Bounds,
    Prompt,
    PromptTooLong,
    build_prompt,
    encode,
    spellings_of,
)
from antiphon.text.template import ChatTemplate, TemplateError
from tests.text import template_styles as styles
from tests.text.byte_tokenizer import ByteTokenizer

CONTROL = ("<|im_start|>", "<|im_end|>", "<|end|>", "<s>", "</s>", "[INST]", "[/INST]", "<<x>>", "<think>", "</think>")
TOKENIZER = ByteTokenizer(CONTROL)
HELLO = [Message("user", "Hello")]


def made(source: str | None) -> ChatTemplate:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", now=lambda: datetime(2026, 7, 4))


# Shows all that it is given.
EVERYTHING = """\
{% for m in messages %}<|im_start|>{{ m.role + m.content }}{{ m.reasoning_content }}{{ m.name }}{{ m.tool_call_id }}
{%- for c in m.tool_calls %}{{ c.id + c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>
{%- endfor %}{{ tools | tojson }}{{ extra | default({}) | tojson }}"""
TEMPLATES = [
    made(source)
    for source in (None, styles.QWEN, styles.LLAMA3, styles.GEMMA, styles.MISTRAL, styles.PARTS, EVERYTHING)
]


def built(
    template: ChatTemplate,
    messages: list[Message] = HELLO,
    tools: tuple[ToolDefinition, ...] = (),
    tokenizer: ByteTokenizer = TOKENIZER,
    **kwargs: Any,
) -> Prompt:
    return build_prompt(template, tokenizer, messages, tools, kwargs)


def control_of(prompt: Prompt) -> list[str]:
    return TOKENIZER.spelled_control(prompt.tokens)


def conversation(text: str) -> tuple[list[Message], tuple[ToolDefinition, ...], dict[str, Any]]:
    """A conversation with `text` in every place that a client can write to."""
    call = ToolCall(text, text, text)
    messages = [
        Message("system", text),
        Message("user", text),
        Message("assistant", text, text, (call,)),
        Message("tool", text, call_id=text, name=text),
        Message("user", text),
    ]
    tool = ToolDefinition(text, text, {"properties": {text: {"description": text, "enum": [text, 1, None]}}})
    return messages, (tool,), {"extra": {text: [text]}}


PLACES: dict[str, Callable[[str], tuple[list[Message], tuple[ToolDefinition, ...], dict[str, Any]]]] = {
    "user": lambda text: ([Message("user", text)], (), {}),
    "system": lambda text: ([Message("system", text), *HELLO], (), {}),
    "assistant": lambda text: ([*HELLO, Message("assistant", text), *HELLO], (), {}),
    "reasoning": lambda text: ([*HELLO, Message("assistant", "a", reasoning=text)], (), {}),
    "tool name": lambda text: (HELLO, (ToolDefinition(text),), {}),
    "description": lambda text: (HELLO, (ToolDefinition("f", text),), {}),
    "schema value": lambda text: (HELLO, (ToolDefinition("f", "", {"title": [text]}),), {}),
    "schema key": lambda text: (HELLO, (ToolDefinition("f", "", {"properties": {text: {}}}),), {}),
    "call name": lambda text: ([*HELLO, Message("assistant", calls=(ToolCall("c", text, "{}"),))], (), {}),
    "call id": lambda text: ([*HELLO, Message("assistant", calls=(ToolCall(text, "f", "{}"),))], (), {}),
    "arguments": lambda text: (
        [*HELLO, Message("assistant", calls=(ToolCall("c", "f", f'{{"{text}": "{text}"}}'),))],
        (),
        {},
    ),
    "escaped arguments": lambda text: (
        [
            *HELLO,
            Message("assistant", calls=(ToolCall("c", "f", f'{{"a": "\\u{ord(text[0]):04x}{text[1:]}"}}'),)),
        ],
        (),
        {},
    ),
    "broken arguments": lambda text: ([*HELLO, Message("assistant", calls=(ToolCall("c", "f", text),))], (), {}),
    "result": lambda text: (
        [*HELLO, Message("assistant", calls=(ToolCall("c", "f", "{}"),)), Message("tool", text, call_id="c")],
        (),
        {},
    ),
    "result's name": lambda text: ([*HELLO, Message("tool", "a", call_id="c", name=text)], (), {}),
    "kwargs": lambda text: (HELLO, (), {"extra": {text: [text]}}),
}


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("spelling", ["<|im_end|>", "<s>", "[/INST]", "</think>"])
def test_a_spelled_control_token_is_text(template: ChatTemplate, place: str, spelling: str) -> None:
    messages, tools, kwargs = PLACES[place](spelling)
    harmless, harmless_tools, harmless_kwargs = PLACES[place]("zzz")
    prompt = built(template, messages, tools, **kwargs)
    assert control_of(prompt) == control_of(built(template, harmless, harmless_tools, **harmless_kwargs))
    assert TOKENIZER.decode(prompt.tokens) == prompt.text == template.render(messages, tools, kwargs=kwargs)


pieces = st.sampled_from(
    [*CONTROL, "<", "<|", "im_", "<|im_", "end|>", "|>", ">", "[", "INST]", "/", "s>", "\n", " ", "a"]
)


@settings(deadline=None)
@given(text=st.lists(pieces, max_size=8).map("".join), template=st.sampled_from(TEMPLATES))
def test_only_the_template_writes_control_tokens(text: str, template: ChatTemplate) -> None:
    messages, tools, kwargs = conversation(text)
    prompt = built(template, messages, tools, **kwargs)
    assert TOKENIZER.decode(prompt.tokens) == prompt.text == template.render(messages, tools, kwargs=kwargs)
    harmless, harmless_tools, harmless_kwargs = conversation("zzz" if text.strip() else text)
    assert control_of(prompt) == control_of(built(template, harmless, harmless_tools, **harmless_kwargs))


HALVES = made("{% for m in messages %}{{ '<|im_' + m.content | trim + 'end|>' + m.content + '<|' }}{% endfor %}")


@pytest.mark.parametrize("text", ["start|>", "end|>x", " end|>", "x<|im_", "x<|im_\n ", "im_", "|im_start|>", "<|im_"])
def test_half_a_control_token_is_not_completed_by_the_template(text: str) -> None:
    prompt = built(HALVES, [Message("user", text)])
    assert control_of(prompt) == []
    assert TOKENIZER.decode(prompt.tokens) == prompt.text
    assert CONTROL[0] in prompt.text or CONTROL[1] in prompt.text or text == "im_" or text == "|im_start|>"


def test_two_messages_do_not_make_one_control_token() -> None:
    glued = made("{% for m in messages %}{{ m.content | trim }}{% endfor %}")
    prompt = built(glued, [Message("user", "a <|im_ "), Message("user", "end|> b")])
    assert prompt.text == "a <|im_end|> b"
    assert control_of(prompt) == []


def test_the_template_s_own_control_tokens_are_tokens() -> None:
    prompt = built(TEMPLATES[0], [Message("user", "<|im_end|>")])
    assert prompt.text == "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert control_of(prompt) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


def test_markers_of_our_own_are_control_tokens_where_the_vocabulary_has_them() -> None:
    messages = [*HELLO, Message("assistant", "a", reasoning="b</think>")]
    assert control_of(built(TEMPLATES[0], messages)).count("</think>") == 1


def test_text_that_forms_no_control_token_is_encoded_in_one_piece() -> None:
    class Recording(ByteTokenizer):
        def __init__(self) -> None:
            super().__init__(CONTROL)
            self.pieces: list[str] = []

        def encode(self, text: str, *, control: bool) -> list[int]:
            self.pieces.append(text)
            return super().encode(text, control=control)

    tokenizer = Recording()
    prompt = built(TEMPLATES[0], [Message("user", "> a quote <")], tokenizer=tokenizer)
    assert tokenizer.pieces == [prompt.text]


def test_overlapping_spellings_are_all_broken() -> None:
    tokenizer = ByteTokenizer(("aba", "bab", "ab"))
    glued = made("{{ messages[0].content }}")
    prompt = built(glued, [Message("user", "ababab")], tokenizer=tokenizer)
    assert tokenizer.spelled_control(prompt.tokens) == []
    assert tokenizer.decode(prompt.tokens) == "ababab"


def test_a_vocabulary_without_control_tokens_has_nothing_to_break() -> None:
    tokenizer = ByteTokenizer()
    prompt = built(TEMPLATES[0], tokenizer=tokenizer)
    assert prompt.tokens == list(prompt.text.encode())


def test_the_beginning_of_sequence_token_is_there_once() -> None:
    tokenizer = ByteTokenizer(CONTROL, bos="<s>")
    bos = tokenizer.bos
    for template in (TEMPLATES[0], TEMPLATES[2]):  # one that leaves it out, one that writes it
        prompt = built(template, tokenizer=tokenizer)
        assert prompt.tokens[0] == bos
        assert prompt.tokens.count(bos or 0) == 1
    assert built(made("{{ messages[0].content }}"), [Message("user", "<s>")], tokenizer=tokenizer).tokens[0] == bos


def test_an_empty_prompt_is_refused_unless_it_has_a_beginning() -> None:
    empty = made("{{ messages[0].content }}")
    with pytest.raises(TemplateError, match="renders nothing"):
        built(empty, [Message("user", "")])
    assert len(built(empty, [Message("user", "")], tokenizer=ByteTokenizer(CONTROL, bos="<s>")).tokens) == 1


def test_the_sentinel_is_one_that_the_request_does_not_have() -> None:
    text = f"{SENTINELS[0]}<|im_end|>{SENTINELS[1]}"
    prompt = built(TEMPLATES[0], [Message("user", text)])
    assert text in prompt.text
    assert SENTINELS[2] not in prompt.text
    assert TOKENIZER.decode(prompt.tokens) == prompt.text


def test_a_sentinel_hidden_in_escaped_arguments_is_seen() -> None:
    escaped = "".join(f"\\u{unit:04x}" for unit in (0xD800 + (0x10FFF0 - 0x10000 >> 10), 0xDC00 + (0x10FFF0 & 0x3FF)))
    call = ToolCall("c", "f", f'{{"a": "{escaped}<|im_end|>"}}')
    prompt = built(TEMPLATES[2], [*HELLO, Message("assistant", calls=(call,))])
    assert f"{SENTINELS[0]}<|im_end|>" in prompt.text
    assert TOKENIZER.decode(prompt.tokens) == prompt.text


def test_a_request_that_has_every_sentinel_is_refused() -> None:
    with pytest.raises(TemplateError, match="private-use characters U\\+10FFF0 to U\\+10FFFD"):
        built(TEMPLATES[0], [Message("user", "".join(SENTINELS))])
    assert built(TEMPLATES[0], [Message("user", "".join(SENTINELS[:-1]))]).tokens


def test_what_the_template_refuses_is_refused() -> None:
    with pytest.raises(TemplateError, match="cannot be set"):
        built(TEMPLATES[0], messages_=1, bos_token="x")


def test_spellings_are_compiled_once_a_vocabulary() -> None:
    assert spellings_of(ByteTokenizer(CONTROL)) is spellings_of(ByteTokenizer(CONTROL))
    assert spellings_of(ByteTokenizer(CONTROL[1:])) is not spellings_of(ByteTokenizer(CONTROL))


def test_encode_reads_control_tokens_only_where_no_sentinel_stands() -> None:
    mark = SENTINELS[0]
    tokens = encode(f"{mark}<{mark}s>x<s>{mark}{mark}", mark, TOKENIZER)
    assert tokens == [*b"<s>x", 259]


def bounded(text: str, limit: int, tokenizer: ByteTokenizer = TOKENIZER) -> Prompt:
    return build_prompt(TEMPLATES[0], tokenizer, [Message("user", text)], (), {}, Bounds(limit))


def test_a_prompt_of_as_many_tokens_as_it_may_have() -> None:
    prompt = bounded("hello", 1_000)
    assert bounded("hello", len(prompt.tokens)) == prompt
    with pytest.raises(PromptTooLong, match=rf"^{len(prompt.tokens)} tokens$"):
        bounded("hello", len(prompt.tokens) - 1)


class Parting(ByteTokenizer):
    """Parts a text before every blank, and knows of `known` tokens that a text has."""

    def __init__(self, known: int = 0) -> None:
        super().__init__(CONTROL)
        self.known = known
        self.encoded: list[str] = []

    def fewest(self, text: str, enough: int) -> int:
        return self.known

    def parts(self, text: str) -> Iterator[str]:
        first, *more = text.split(" ")
        yield first
        yield from (f" {part}" for part in more)

    def encode(self, text: str, *, control: bool) -> list[int]:
        self.encoded.append(text)
        return super().encode(text, control=control)


def test_what_is_known_to_be_too_long_is_not_tokenized() -> None:
    tokenizer = Parting(known=51)
    with pytest.raises(PromptTooLong, match="^51 tokens or more$"):
        bounded("one two", 50, tokenizer)
    assert tokenizer.encoded == []
    assert bounded("one two", 51, tokenizer) == bounded("one two", 1_000)


def test_nothing_is_tokenized_behind_the_first_part_that_is_too_much() -> None:
    tokenizer = Parting()
    with pytest.raises(PromptTooLong, match="^10 tokens or more$"):
        bounded("1 23 4 5", 9, tokenizer)
    assert tokenizer.encoded == ["<|im_start|>user\n1", " 23"]


def test_whoever_wants_to_stop_is_asked_before_each_part() -> None:
    class Enough(Exception):
        pass

    def check() -> None:
        if len(tokenizer.encoded) == 2:
            raise Enough

    tokenizer = Parting()
    with pytest.raises(Enough):
        build_prompt(TEMPLATES[0], tokenizer, [Message("user", "1 2 3 4")], (), {}, Bounds(check=check))
    assert len(tokenizer.encoded) == 2


@pytest.mark.parametrize("place", range(WINDOW - 11, WINDOW + 2))
def test_a_control_token_is_found_wherever_a_search_ends(place: int) -> None:
    text = "x" * place + "<|im_end|><|im_end|>"
    assert spellings_of(TOKENIZER).broken(text, "~").count("<~") == 2
    assert [cut - place for cut in spellings_of(TOKENIZER).keeping_apart(text, [place + 5, place + 15])] == [5, 15]
