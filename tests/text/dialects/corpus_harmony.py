"""Outputs of gpt-oss, from behind `<|start|>assistant` on, and what the dialect makes of them."""

from __future__ import annotations

from antiphon.protocol.fragments import Reasoning
from antiphon.text.dialects.harmony import HEADER_LIMIT, MARKERS
from tests.text.dialects.corpus import Case, called, cut, said, thought

ULM = '{"city": "Ulm"}'
LONG = "x" * 50_000
AGAIN = "<|end|><|start|>assistant"
THOUGHT = f"<|channel|>analysis<|message|>Hm.{AGAIN}"
TO_CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
NASTY = '{"a": "<|end|><|call|><|start|>assistant<|channel|>final<|message|>\\"", "b": [1]}'


def ends(header: str, content: str = ULM) -> str:
    return f"{header}<|message|>{content}<|call|>"


# Headers of calls.
CALLS = {
    "as documented": "<|channel|>commentary to=functions.get_weather <|constrain|>json",
    "no space before the type": "<|channel|>commentary to=functions.get_weather<|constrain|>json",
    "type without its marker": "<|channel|>commentary to=functions.get_weather json",
    "no type": "<|channel|>commentary to=functions.get_weather",
    "other type": "<|channel|>commentary to=functions.get_weather code",
    "recipient with the role": " to=functions.get_weather<|channel|>commentary json",
    "recipient with the role, marked type": " to=functions.get_weather<|channel|>commentary <|constrain|>json",
    "recipient and no channel": " to=functions.get_weather <|constrain|>json",
    "recipient behind the type": "<|channel|>commentary json to=functions.get_weather",
    "on the channel of thinking": "<|channel|>analysis to=functions.get_weather code",
    "on the channel of answers": "<|channel|>final to=functions.get_weather",
    "no namespace": "<|channel|>commentary to=get_weather",
    "spaces behind markers": "<|channel|> commentary to=functions.get_weather <|constrain|> json",
    "channel twice": "<|channel|>commentary to=assistant<|channel|>commentary to=functions.get_weather json",
    "role": "assistant<|channel|>commentary to=functions.get_weather",
    "start and role": "<|start|>assistant<|channel|>commentary to=functions.get_weather",
    "line break": "\n<|channel|>commentary to=functions.get_weather\n",
}

# Headers that cannot be read, or name somebody who is not there.
ODD = {
    "undeclared": "<|channel|>commentary to=functions.a-b",
    "undeclared, with a type": "<|channel|>commentary to=functions.nope <|constrain|>json",
    "other namespace": "<|channel|>commentary to=browser.search",
    "unknown channel": "<|channel|>comment",
    "no channel behind the marker": "<|channel|>",
    "words for a channel": "<|channel|>commentary 2? I must",
    "question marks": "<|channel|>??",
    "channel without its marker": "commentary to=functions.get_weather",
    "two types": "<|channel|>commentary to=functions.get_weather json code",
    "recipient without a name": "<|channel|>commentary to= json",
    "another role": "<|start|>user",
    "a tool's role": "<|start|>functions.get_weather to=assistant<|channel|>commentary",
    "two marked types": "<|channel|>analysis<|constrain|>a<|constrain|>b",
    "text": "Hello",
}

HARMONY = {
    "nothing": Case("", []),
    "answer": Case("<|channel|>final<|message|>Hello there.<|return|>", said("Hello there.")),
    "answer that just ends": Case("<|channel|>final<|message|>Hello there.", said("Hello there.")),
    "answer with a type": Case("<|channel|>final <|constrain|>json<|message|>{}", said("{}")),
    "answer without a channel": Case("<|message|>Hello.", said("Hello.")),
    "answer to the assistant": Case("<|channel|>final to=assistant<|message|>Hello.", said("Hello.")),
    "whitespace stays": Case("<|channel|>final<|message|>\n  a \n\n b \n<|return|>", said("\n  a \n\n b \n")),
    "other scripts": Case("<|channel|>final<|message|>日本語\u3000と😀", said("日本語\u3000と😀")),
    "empty answer": Case("<|channel|>final<|message|><|return|>", []),
    "thinking, then an answer": Case(
        f"{THOUGHT}<|channel|>final<|message|>Yes.<|return|>", [*thought("Hm."), *said("Yes.")]
    ),
    "thinking twice": Case(f"{THOUGHT}{THOUGHT}", [*thought("Hm."), *thought("Hm.")]),
    "empty thinking": Case(f"<|channel|>analysis<|message|>{AGAIN}<|channel|>final<|message|>Yes.", said("Yes.")),
    "thinking that is cut": Case("<|channel|>analysis<|message|>Hm. ", [Reasoning("Hm. ")]),
    "opened by the template": Case(
        f"Hm.{AGAIN}<|channel|>final<|message|>Yes.", [*thought("Hm."), *said("Yes.")], reasoning_open=True
    ),
    "thinking without an end": Case(
        "<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Yes.",
        [*thought("Hm."), *said("Yes.")],
    ),
    "thinking without an end and a start": Case(
        "<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Yes.", [*thought("Hm."), *said("Yes.")]
    ),
    "a call in thinking": Case(
        "<|channel|>analysis<|message|>I write to=functions.search {}<|end|>", thought("I write to=functions.search {}")
    ),
    "words, then a call": Case(
        f"<|channel|>commentary<|message|>I look.{AGAIN}{TO_CALL}{ULM}<|call|>", [*said("I look."), *called()]
    ),
    "words, then an answer": Case(
        f"<|channel|>commentary<|message|>I look.{AGAIN}<|channel|>final<|message|>Yes.", said("I look.\n\nYes.")
    ),
    "words, nothing, an answer": Case(
        f"<|channel|>commentary<|message|>I look.{AGAIN}<|channel|>final<|message|>{AGAIN}<|message|>Yes.",
        said("I look.\n\nYes."),
    ),
    "words, then nothing": Case(f"<|channel|>commentary<|message|>I look.{AGAIN}<|message|>", said("I look.")),
    "words, thinking, an answer": Case(
        f"<|channel|>commentary<|message|>I look.{AGAIN}{THOUGHT}<|channel|>final<|message|>Yes.",
        [*said("I look."), *thought("Hm."), *said("Yes.")],
    ),
    "call, then words": Case(f"{TO_CALL}{ULM}{AGAIN}<|channel|>final<|message|>Yes.", [*called(), *said("Yes.")]),
    "words, an empty call, words": Case(
        f"<|message|>a{AGAIN}{TO_CALL}{AGAIN}<|message|>b", [*said("a"), *called("{}"), *said("b")]
    ),
    "thinking, then a call": Case(f"{THOUGHT}{TO_CALL}{ULM}<|call|>", [*thought("Hm."), *called()]),
    **{f"call: {name}": Case(ends(header), called()) for name, header in CALLS.items()},
    "call that just ends": Case(f"{TO_CALL}{ULM}", called()),
    "call that ends a message": Case(f"{TO_CALL}{ULM}<|end|>", called()),
    "call and half a marker": Case(f"{TO_CALL}{ULM}<|ca", called()),
    "call and whitespace": Case(f"{TO_CALL}  {ULM}\n", called(f"{ULM}\n")),
    "call and more": Case(f"{TO_CALL}{ULM} x<|call|>", called(f"{ULM} x")),
    "two calls": Case(f"{TO_CALL}{ULM}{AGAIN}{TO_CALL}{{}}<|call|>", [*called(), *called("{}")]),
    "two calls, each with its own end": Case(
        f"{TO_CALL}{ULM}<|call|><|start|>assistant{TO_CALL}{{}}", [*called(), *called("{}")]
    ),
    "two calls and nothing between": Case(f"{TO_CALL}{ULM}{TO_CALL}{{}}", [*called(), *called("{}")]),
    "call without arguments": Case(f"{TO_CALL}<|call|>", called("{}")),
    "call with a list": Case(f"{TO_CALL}[1, [2]]", called("[1, [2]]")),
    "call with a string": Case(f'{TO_CALL}"a"', called('"a"')),
    "call with a number": Case(f"{TO_CALL}5<|call|>", called("5")),
    "call with a number and a space": Case(f"{TO_CALL}5 ", called("5 ")),
    "call with a number that just ends": Case(f"{TO_CALL}5", cut("5")),
    "call with code": Case(f"{TO_CALL}print(1)<|call|>", called("print(1)")),
    "call with a bracket too much": Case(f"{TO_CALL}}}<|call|>", called("}")),
    "call with a bracket too much that just ends": Case(f"{TO_CALL}}}", cut("}")),
    "nested arguments": Case(
        f'{TO_CALL}{{"a": {{"b": [1, {{"c": null}}]}}}}', called('{"a": {"b": [1, {"c": null}]}}')
    ),
    "markers in a string": Case(f"{TO_CALL}{NASTY}<|call|>", called(NASTY)),
    "50 kB": Case(f'{TO_CALL}{{"q": "{LONG}"}}<|call|>', called(f'{{"q": "{LONG}"}}')),
    "marker in the arguments": Case(f'{TO_CALL}{{"a": [1<|call|>', called('{"a": [1')),
    "next message in the arguments": Case(
        f'{TO_CALL}{{"a": [1{AGAIN}<|channel|>final<|message|>b', [*called('{"a": [1'), *said("b")]
    ),
    "marker that counts for nothing in the arguments": Case(
        f'{TO_CALL}{{"a": <|message|>1}}<|call|>', called('{"a": <|message|>1}')
    ),
    "marker that counts for nothing in the answer": Case(
        "<|channel|>final<|message|>a <|message|> b <|constrain|>", said("a <|message|> b <|constrain|>")
    ),
    "half a marker in the arguments": Case(f'{TO_CALL}{{"a": 1 <|ca', cut('{"a": 1 <|ca')),
    "half a marker, after all, in the arguments": Case(f'{TO_CALL}{{"a": 1 <|ca}}', called('{"a": 1 <|ca}')),
    "half a marker in the answer": Case("<|channel|>final<|message|>a <|en", said("a <|en")),
    **{
        f"cut: {part}": Case(f"{TO_CALL}{part}", cut(part))
        for part in ("{", '{"city', '{"city": "Ulm"', '{"a": [1]', "nu")
    },
    "cut behind the header": Case(TO_CALL, cut("")),
    "cut behind the header and whitespace": Case(f"{TO_CALL} ", cut("")),
    **{f"odd header: {name}": Case(ends(header), said(f"{header}<|message|>{ULM}")) for name, header in ODD.items()},
    "a tool that only the model knows": Case(
        "<|channel|>analysis to=browser.search code<|message|>{}<|call|>",
        thought("<|channel|>analysis to=browser.search code<|message|>{}"),
    ),
    "odd header, then the answer": Case(
        f"<|channel|>commentary?{AGAIN}<|channel|>final<|message|>Yes.", said("<|channel|>commentary?\n\nYes.")
    ),
    "header without a message": Case(f"<|channel|>final{AGAIN}<|channel|>final<|message|>Yes.", said("Yes.")),
    "call without a message": Case(
        "<|channel|>commentary to=functions.search<|call|>", said("<|channel|>commentary to=functions.search")
    ),
    "text behind a message": Case(
        f"{THOUGHT.removesuffix('<|start|>assistant')}Yes.", [*thought("Hm."), *said("Yes.")]
    ),
    "whitespace between messages": Case(
        "<|channel|>analysis<|message|>Hm.<|end|>\n<|start|>assistant<|channel|>final<|message|>Yes.",
        [*thought("Hm."), *said("Yes.")],
    ),
    "text without any header": Case("Hello there.", said("Hello there.")),
    "long text without any header": Case(f"{LONG[:HEADER_LIMIT]} x<|end|>", said(f"{LONG[:HEADER_LIMIT]} x")),
    "header too long": Case(
        f"<|channel|>final {LONG[:HEADER_LIMIT]}<|message|>x",
        said(f"<|channel|>final {LONG[:HEADER_LIMIT]}<|message|>x"),
    ),
    **{
        f"cut in a header: {part}": Case(f"{THOUGHT}{part}", thought("Hm."))
        for part in ("", "<|cha", "<|channel|>", "<|channel|>fin", "<|channel|>final<|mess")
    },
    "cut before the role": Case(THOUGHT.removesuffix("istant"), thought("Hm.")),
    "cut in a header with a recipient": Case(
        f"{THOUGHT}<|channel|>commentary to=func",
        [*thought("Hm."), *said("<|start|>assistant<|channel|>commentary to=func")],
    ),
    "calls are not allowed": Case(f"{TO_CALL}{ULM}<|call|>", said(f"{TO_CALL}{ULM}"), calls=False),
    "spelled control tokens": Case(f"{TO_CALL}{ULM}", said(f"{TO_CALL}{ULM}"), control=MARKERS),
}
