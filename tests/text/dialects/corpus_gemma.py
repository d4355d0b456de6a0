"""Outputs of Gemma models that have a form for calls, and what the dialects make of them."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.protocol.fragments import Fragment, Reasoning
from antiphon.text.dialects.keyed_calls import HEAD_LIMIT
from tests.text.dialects.corpus import Case, called, cut, said, thought

LONG = "x" * 50_000

# How values are written, `~` being the delimiter of strings, and what they say in JSON.
VALUES = {
    "string": ("a:~b c~", '{"a": "b c"}'),
    "empty string": ("a:~~,b:~~", '{"a": "", "b": ""}'),
    "quotes in a string": ('a:~say "hi", it\'s~', """{"a": "say \\"hi\\", it's"}"""),
    "backslashes in a string": (r"a:~\n\\~", r'{"a": "\\n\\\\"}'),
    "line breaks in a string": ("a:~b\n\tc\x01~", r'{"a": "b\n\tc\u0001"}'),
    "brackets in a string": ("a:~}]{:,~", '{"a": "}]{:,"}'),
    "markers in a string": (
        "a:~<end_function_call> <tool_call|> <|channel>thought ~",
        '{"a": "<end_function_call> <tool_call|> <|channel>thought "}',
    ),
    "half delimiters in a string": ('a:~<esc <|" <|~', '{"a": "<esc <|\\" <|"}'),
    "other scripts": ("a:~日本語 😀\u00a0~", '{"a": "日本語 😀\u00a0"}'),
    "numbers": ("n:3,x:-1.5e3", '{"n": 3, "x": -1.5e3}'),
    "words": ("a:true,b:false,c:null,d:None", '{"a": true, "b": false, "c": null, "d": null}'),
    "array": ("a:[~b~,2,[~c~]],d:[]", '{"a": ["b", 2, ["c"]], "d": []}'),
    "object": ("a:{b:{c:~d~},e:[{f:1}]},g:{}", '{"a": {"b": {"c": "d"}, "e": [{"f": 1}]}, "g": {}}'),
    "keys between delimiters": ("~a b~:1,c:{~d~:2}", '{"a b": 1, "c": {"d": 2}}'),
    "whitespace": ("\n a : ~b~ ,\n c: 1\n", '{"a": "b", "c": 1}'),
    "JSON": ('"a": "b\\n\\u00e4", "c": ["d"]', '{"a": "b\\n\\u00e4", "c": ["d"]}'),
    "single quotes": ("a:['b', \"c\"]", '{"a": ["b", "c"]}'),
    "delimiters in a quoted string": ("a:'b ~ c'", '{"a": "b ~ c"}'),
    "no comma": ("a:~b~c:1", '{"a": "b""c": 1}'),
    "no opening delimiter": ("a:b c", '{"a": b c}'),
    "trailing comma": ("a:[1,],", '{"a": [1]}'),
}

CUT = {
    "behind the bracket": ("call:search{", "{"),
    "in a key": ("call:search{ab", "{ab"),
    "behind a key": ("call:search{ab:", '{"ab": '),
    "in a string": ("call:search{ab:~c", '{"ab": "c'),
    "in a word": ("call:search{ab:tr", '{"ab": tr'),
    "behind a string": ("call:search{ab:~c~", '{"ab": "c"'),
    "in an array": ("call:search{ab:[1,", '{"ab": [1'),
}

NO_CALLS = {
    "undeclared": "call:nope{a:1}",
    "no prefix": "search{a:1}",
    "wrong prefix": "calls:search{a:1}",
    "half a prefix": "cal",
    "no name": "call:{a:1}",
    "half a name": "call:sea",
    "namespace": "call:tools:search{a:1}",
    "round brackets": "call:search(a=1)",
    "JSON": '{"name": "search"}',
    "name too long": f"call:{'n' * HEAD_LIMIT}{{a:1}}",
    "nothing": "",
    "whitespace": " \n",
}


def _cases(opening: str, closing: str, delimiter: str) -> Iterator[tuple[str, Case]]:
    def case(output: str, fragments: list[Fragment], **settings: object) -> Case:
        return Case(output.replace("~", delimiter), fragments, **settings)  # type: ignore[arg-type]

    ulm = f"{opening}call:get_weather{{city:~Ulm~}}{closing}"
    for name, (value, json) in VALUES.items():
        output = f"{opening}call:search{{{value}}}{closing}"
        yield f"value: {name}", case(output, called(json.replace("~", _json(delimiter)), "search"))
    for name, (output, arguments) in CUT.items():
        yield f"cut {name}", case(opening + output, cut(arguments, "search"))
    for name, output in NO_CALLS.items():
        yield f"no call: {name}", case(opening + output, said(opening + output))
    yield "a call", case(ulm, called())
    yield "no arguments", case(f"{opening}call:search{{}}{closing}", called("{}", "search"))
    yield "whitespace in the head", case(f"{opening} call: search {{ }} {closing}", called("{}", "search"))
    yield "50 kB", case(f"{opening}call:search{{q:~{LONG}~}}{closing}", called(f'{{"q": "{LONG}"}}', "search"))
    yield "two calls", case(ulm + ulm, [*called(), *called()])
    yield "two calls and text", case(f"{ulm}\nand\n{ulm} ok", [*called(), *said("and"), *called(), *said("ok")])
    yield "text before", case(f"Let me see.\n{ulm}", [*said("Let me see."), *called()])
    yield "lost closing tag", case(f"{ulm.removesuffix(closing)}\nDone", [*called(), *said("Done")])
    yield "half a closing tag", case(ulm[:-3], called())
    yield (
        "lost bracket",
        case(f"{opening}call:search{{a:[1{closing}b", [*called('{"a": [1', "search"), *said("b")]),
    )
    yield (
        "wrong bracket",
        case(f"{opening}call:search{{a:1]{closing}", [*called('{"a": 1}', "search"), *said(f"]{closing}")]),
    )
    yield (
        "next call in the arguments",
        case(f"{opening}call:search{{a:1,{ulm}", [*called('{"a": 1', "search"), *called()]),
    )
    yield (
        "half a tag in the arguments",
        case(f"{opening}call:search{{a:1{closing[:5]}", cut(f'{{"a": 1{closing[:5]}', "search")),
    )
    yield (
        "half a delimiter in a string",
        case(f"{opening}call:search{{a:~b{delimiter[:2]}", cut(f'{{"a": "b{delimiter[:2]}', "search")),
    )
    yield "delimiter in text", case("a ~ b ~", [*said(f"a {delimiter} b {delimiter}")])
    yield "text", case("Hello there.", said("Hello there."))
    yield "nothing", case("", [])
    yield "calls are not allowed", case(f"a {opening}call:search{{}}", said(f"a {opening}call:search{{}}"), calls=False)
    yield (
        "spelled control tokens",
        case(f"a {ulm}", said(f"a {ulm}".replace("~", delimiter)), control=(opening, closing, delimiter)),
    )
    yield (
        "spelled delimiter",
        case(
            f"{opening}call:search{{a:~b~}}{closing}",
            called(f'{{"a": {delimiter}b{delimiter}}}', "search"),
            control=(delimiter,),
        ),
    )


def _json(text: str) -> str:
    return text.replace('"', r"\"")


_ULM = '<|tool_call>call:get_weather{city:<|"|>Ulm<|"|>}<tool_call|>'

GEMMA = {
    **dict(_cases("<start_function_call>", "<end_function_call>", "<escape>")),
    "end of the turn": Case(
        "<start_function_call>call:search{}<end_function_call><start_function_response>", called("{}", "search")
    ),
}
GEMMA_4 = {
    **dict(_cases("<|tool_call>", "<tool_call|>", '<|"|>')),
    "thinking": Case(f"<|channel>thought\nHm.\n<channel|>{_ULM}", [*thought("Hm."), *called()]),
    "thinking, then text": Case("<|channel>thought\nHm.<channel|>Yes.", [*thought("Hm."), *said("Yes.")]),
    "empty thinking": Case("<|channel>thought\n<channel|>Yes.", said("Yes.")),
    "a call in thinking": Case(f"<|channel>thought\n{_ULM}<channel|>", thought(_ULM)),
    "thinking that does not end": Case("<|channel>thought\nHm. ", [Reasoning("Hm. ")]),
    "opened by the template": Case("Hm.\n<channel|>Yes.", [*thought("Hm."), *said("Yes.")], reasoning_open=True),
    "an end too much": Case("Yes.<channel|>", said("Yes.")),
    "an end too much, within": Case("Yes. <channel|> No.", said("Yes. No.")),
    "an empty block behind the answer": Case("Yes.\n<|channel>thought\n<channel|>", said("Yes.\n")),
    "another channel": Case("<|channel>final\nYes.", said("<|channel>final\nYes.")),
    "end of the turn": Case(f"{_ULM}<|tool_response>", called()),
}
