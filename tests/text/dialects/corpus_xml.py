"""Outputs in the XML-like forms of calls, and what their dialects make of them. The declared tools are in `XML_TOOLS`.

Most cases are the same for every form: they are spelled in it as its chat template would.
"""

from __future__ import annotations

import json
from typing import Any

from antiphon.protocol.fragments import Fragment, Reasoning
from antiphon.text.dialects.xml_calls import HEAD_LIMIT
from antiphon.text.dialects.xml_syntax import GAP_LIMIT
from antiphon.text.dialects.xml_values import SCALAR_LIMIT
from tests.text.dialects.corpus import THINK, TOOLS, Case, called, cut, said, thought
from tests.text.dialects.xml_forms import (
    BOOK,
    DSML_FORM,
    DSML_V4_FORM,
    GLM_47_FORM,
    GLM_FORM,
    MINIMAX_FORM,
    QWEN_FORM,
    Form,
)

XML_TOOLS: dict[str, dict[str, Any]] = {**TOOLS, "book": BOOK}

LONG = "0123456789 日本語\n" * 3400  # 50 kB and more


def asked(text: str, name: str = "search") -> list[Fragment]:
    """A call whose one argument is a string."""
    return called(json.dumps({"q": text}, ensure_ascii=False), name)


def calls(form: Form) -> dict[str, Case]:
    """Calls with strings."""
    one = form.spelled(q="Ulm")
    return {
        "a call": Case(one, asked("Ulm")),
        "half a closing tag behind a call": Case(
            one[:-2],
            cut('{"q": "Ulm"', "search") if one.endswith(form.closing) else asked("Ulm"),
        ),
        "no parameters": Case(form.spelled(), called("{}", "search")),
        "two parameters": Case(form.spelled(a="x", b="y"), called('{"a": "x", "b": "y"}', "search")),
        "two calls": Case(
            form.turn(form.call(q="Ulm"), form.call("write-file")), [*asked("Ulm"), *called("{}", "write-file")]
        ),
        "text round it": Case(f"Let me see.\n\n{one}\nDone.", [*said("Let me see."), *asked("Ulm"), *said("Done.")]),
        "two turns and text between": Case(
            f"{one}\n\nand\n{form.spelled(q='x')}", [*asked("Ulm"), *said("and"), *asked("x")]
        ),
        "thinking and a call": Case(
            f"<think>\nI look.\n</think>\n\n{one}\n<think>b</think> c",
            [*thought("I look."), *asked("Ulm"), *thought("b"), *said("c")],
        ),
        "a call in thinking": Case(f"<think>so {one} here</think>\n{one}", [*thought(f"so {one} here"), *asked("Ulm")]),
        "a call in thinking that was cut": Case(f"<think>{one}", [Reasoning(one)]),
        "opened by the template": Case(
            f"Hm.\n</think>\n\n{one}", [*thought("Hm."), *asked("Ulm")], reasoning_open=True
        ),
        "other scripts": Case(form.spelled(q="日本語\u3000😀 é"), asked("日本語\u3000😀 é")),
        "key with spaces and other scripts": Case(
            form.spelled(**{"größe in cm": "5"}), called('{"größe in cm": "5"}', "search")
        ),
        "whitespace is the string's": Case(form.spelled(q="  a\r\n\n\tb "), asked("  a\r\n\n\tb ")),
        "newlines are the string's": Case(form.spelled(q="\n\na\n\n\n"), asked("\n\na\n\n\n")),
        "a newline alone": Case(form.spelled(q="\n"), asked("\n")),
        "an empty string": Case(form.spelled(q=""), asked("")),
        "what JSON escapes": Case(form.spelled(q='a"b\\c\td\u0001\\u0041'), asked('a"b\\c\td\u0001\\u0041')),
        "JSON is a string": Case(form.spelled(q='{"a": [1]}'), asked('{"a": [1]}')),
        "tags in a string": Case(
            form.spelled(q="</tool_call><tool_call><think>x</think> <function=a>{}</function>"),
            asked("</tool_call><tool_call><think>x</think> <function=a>{}</function>"),
        ),
        "half ends in a string": Case(
            form.spelled(q=f"a {form.value_end[:-1]} <<{form.value_end[:5]}"),
            asked(f"a {form.value_end[:-1]} <<{form.value_end[:5]}"),
        ),
        "50 kB": Case(form.spelled(q=LONG), asked(LONG)),
        "the same key twice": Case(
            form.turn(form.head.replace("NAME", "search") + form.parameters({"a": "x"}) * 2 + form.end),
            called('{"a": "x", "a": "x"}', "search"),
        ),
        "more whitespace than the template writes": Case(
            form.spelled(q="Ulm").replace(form.value_end, form.value_end + " \n " * 4), asked("Ulm")
        ),
        "calls are not allowed": Case(f"a {one} b", said(f"a {one} b"), calls=False),
    }


def ends(form: Form) -> dict[str, Case]:
    """The end of a value where it may belong to it, and ends that are missing."""
    end, closing = form.value_end, form.closing
    nested = f"<parameter>x{end}{end}\n{end} and more {end} <b>"
    return {
        "ends in a value": Case(form.spelled(q=nested), asked(nested)),
        "an end in a value, then its own": Case(form.spelled(q=f"<parameter>x{end}"), asked(f"<parameter>x{end}")),
        "a value that is an end": Case(form.spelled(q=end), asked(end)),
        "an end, and the call's too far away": Case(
            form.spelled(q=f"a{end}{' ' * (GAP_LIMIT + 1)}{closing} b"),
            asked(f"a{end}{' ' * (GAP_LIMIT + 1)}{closing} b"),
        ),
        "an end, and the call's just near enough": Case(
            f"{form.begun(q='a')}{end}{' ' * GAP_LIMIT}{closing}b", [*asked("a"), *said("b")]
        ),
        "an end, and what is none of the call's": Case(
            form.spelled(q=f"a{end} {closing[:-1]}x"), asked(f"a{end} {closing[:-1]}x")
        ),
        "something behind the last value": Case(
            f"{form.begun(q='a')}{end} so {closing}",
            cut(f'{{"q": {json.dumps(f"a{end} so {closing}", ensure_ascii=False)[:-1]}', "search"),
        ),
        "no end of the call": Case(
            form.turn(form.call(q="a").removesuffix(form.end) + form.call(q="b")), [*asked("a"), *asked("b")]
        ),
        "undeclared": Case(
            f"a \n{form.spelled('nope', q='x')}\n b",
            said(f"a \n{form.spelled('nope', q='x')}\n b".replace(form.before or "\0", "")),
        ),
        "undeclared, then declared": Case(
            f"{form.spelled('nope', q='<think>x</think>', r=nested)}\n{form.spelled(q='Ulm')}",
            [
                *said(form.spelled("nope", q="<think>x</think>", r=nested).removeprefix(form.before)),
                *asked("Ulm"),
            ],
        ),
        "undeclared, without parameters": Case(
            form.spelled("nope"), said(form.spelled("nope").removeprefix(form.before))
        ),
        "undeclared, cut": Case(form.begun("nope", q="x"), said(form.begun("nope", q="x").removeprefix(form.before))),
        "undeclared, cut behind an end": Case(
            form.begun("nope", q="x") + end, said((form.begun("nope", q="x") + end).removeprefix(form.before))
        ),
        "cut in a value": Case(form.begun(q="a b"), cut('{"q": "a b', "search")),
        "cut in a value behind a newline": Case(form.begun(q="a\n"), cut('{"q": "a\\n', "search")),
        "cut in a second value": Case(form.begun(q="a", r="b"), cut('{"q": "a", "r": "b', "search")),
        "cut within the end": Case(
            form.begun(q="a") + form.line + end[:-1],
            cut(f'{{"q": {json.dumps("a" + form.line + end[:-1], ensure_ascii=False)[:-1]}', "search"),
        ),
        "cut behind the end": Case(form.begun(q="a") + form.line + end, cut('{"q": "a"', "search")),
        "cut within the call's end": Case(
            f"{form.begun(q='a')}{form.line}{end}\n{closing[:-1]}", cut('{"q": "a"', "search")
        ),
        "cut in a number": Case(form.begun("book", count="1"), cut('{"count": 1', "book")),
        "cut in a list": Case(form.begun("book", tags='["a", '), cut('{"tags": ["a", ', "book")),
        "cut in a key": Case(
            form.begun(q="a") + form.line + end + form.parameter.partition("KEY")[0] + "ke", cut('{"q": "a"', "search")
        ),
        "cut in the name": Case(
            f"a {form.before}{form.head.partition('NAME')[0]}sea",
            said(f"a {form.head.partition('NAME')[0]}sea"),
        ),
    }


def typed(form: Form) -> dict[str, Case]:
    """Values that are no strings, and those that should be none and are."""

    def read(key: str, text: str, value: str) -> Case:
        return Case(form.spelled("book", **{key: text}), called(f'{{"{key}": {value}}}', "book"))

    end, closing = form.value_end, form.closing
    return {
        "integer": read("count", "5", "5"),
        "negative integer": read("count", "-17", "-17"),
        "integer as a fraction": read("count", "5.0", "5.0"),
        "integer with whitespace": read("count", " 5\n", "5"),
        "number as it was spelled": read("price", "-1.50e3", "-1.50e3"),
        "number beyond a double": read("price", "1e999", "1e999"),
        "boolean": read("gift", "true", "true"),
        "boolean as Python writes it": read("gift", "False", "false"),
        "null": read("nothing", "null", "null"),
        "null as Python writes it": read("nothing", "None", "null"),
        "integer or null: integer": read("days", "3", "3"),
        "integer or null: null": read("days", "null", "null"),
        "list": read("tags", '[ "a b",\n\t"c\\"" ,[ ] ]', '["a b","c\\"",[]]'),
        "list as Python writes it": read(
            "tags",
            "['a', \"it's\", 'x\"y', 'it\\'s', '\\n']",
            r'["a","it' + r"'s" + r'","x\"y","it' + "'s" + r'","\n"]',
        ),
        "object": read("at", '{"a": {"b": [1, 2.50, null]}, "c": "x  y"}', '{"a":{"b":[1,2.50,null]},"c":"x  y"}'),
        "object as Python writes it": read("at", "{'a': True, 'b': None}", '{"a":true,"b":null}'),
        "enum of numbers": read("stars", "2", "2"),
        "reference": read("place", '{"city": "Ulm"}', '{"city":"Ulm"}'),
        "reference to itself": read("tree", "[[], [[]]]", "[[],[[]]]"),
        "several": Case(
            form.spelled("book", title="a", count="2", gift="true", tags="[]"),
            called('{"title": "a", "count": 2, "gift": true, "tags": []}', "book"),
        ),
        "ends in a JSON string": read(
            "tags", f'["{end}{closing}", "\\"{end} {closing}"]', f'["{end}{closing}","\\"{end} {closing}"]'
        ),
        "an end in a JSON string, alone": read("tags", f'["{end}"]', f'["{end}"]'),
        "broken JSON": read("tags", '["a\n', '"[\\"a\\n"'),
        "broken JSON on one line": Case(
            form.spelled("book", tags='["a'),
            called('{"tags": "[\\"a"}', "book")
            if "\n" in form.parameter
            else cut(f'{{"tags": ["a{end}{closing}', "book"),  # As if the string went on.
        ),
        "50 kB of JSON": read("tags", json.dumps([LONG]), json.dumps([LONG], separators=(",", ":"))),
    }


def by_schema(form: Form) -> dict[str, Case]:
    """What the schema decides: not in DSML, where the element does."""

    def read(key: str, text: str, value: str) -> Case:
        return Case(form.spelled("book", **{key: text}), called(f'{{"{key}": {value}}}', "book"))

    return {
        "words for a number": read("count", "five", '"five"'),
        "number, then words": read("count", "5 or 6", '"5 or 6"'),
        "empty number": read("count", "", '""'),
        "fraction for an integer": read("count", "1.5", '"1.5"'),
        "quoted number": read("count", '"5"', '"\\"5\\""'),
        "no number of JSON": read("price", "NaN", '"NaN"'),
        "number that is none": read("price", "-Infinity", '"-Infinity"'),
        "object for a list": read("tags", "{}", '"{}"'),
        "text for an object": read("at", "{so}", '"{so}"'),
        "word for a boolean": read("gift", "tomorrow", '"tomorrow"'),
        "string or null: null": read("note", "null", "null"),
        "string or null: string": read("note", "nothing", '"nothing"'),
        "string or null: quoted": read("note", '"a"', '"\\"a\\""'),
        "string or null: long": read("note", "n" * 300, f'"{"n" * 300}"'),
        "string or null: whitespace": read("note", " " * (SCALAR_LIMIT + 1), f'"{" " * (SCALAR_LIMIT + 1)}"'),
        "string or integer: integer": read("room", "12", "12"),
        "string or integer: string": read("room", "12a", '"12a"'),
        "enum of strings": read("view", "sea", '"sea"'),
        "enum of strings, another": read("view", "5", '"5"'),
        "nothing is known": read("more", "5", '"5"'),
        "unknown key": read("other", "5", '"5"'),
    }


QWEN_CASES = {
    "no tag round the call": Case("<function=search>\n<parameter=q>\nUlm\n</parameter>\n</function>", asked("Ulm")),
    "no tag before the call": Case(
        f"So:\n{QWEN_FORM.spelled(q='Ulm').removeprefix('<tool_call>')}\n", [*said("So:"), *asked("Ulm")]
    ),
    "no tag round an undeclared call": Case("a <function=nope>b</function>", said("a <function=nope>b</function>")),
    "a second call within the first, without a tag": Case(
        "<tool_call><function=search><parameter=q>a</parameter><function=search></function></tool_call>",
        [*asked("a"), *called("{}", "search")],
    ),
    "two calls in one tag": Case(
        "<tool_call>\n<function=search>\n</function>\n<function=search>\n</function>\n</tool_call>\nb",
        [*called("{}", "search"), *called("{}", "search"), *said("b")],
    ),
    "no newlines": Case(
        "<tool_call><function=search><parameter=q>Ulm</parameter></function></tool_call>", asked("Ulm")
    ),
    "one newline for an empty value": Case(
        "<tool_call><function=search><parameter=q>\n</parameter></function></tool_call>", asked("")
    ),
    "whitespace round the names": Case(
        "<tool_call> <function= search ><parameter= q >Ulm</parameter></function></tool_call>", asked("Ulm")
    ),
    "no end of the function": Case("<tool_call><function=search></tool_call>b", [*called("{}", "search"), *said("b")]),
    "no end of the function, behind a value": Case(
        "<tool_call><function=search><parameter=q>\na\n</parameter>\n</tool_call>b", [*asked("a"), *said("b")]
    ),
    "words behind the tag": Case("The <tool_call> tag.", said("The <tool_call> tag.")),
    "words behind the name": Case(
        "<tool_call><function=search>Ulm</function></tool_call>",
        [*called("{}", "search"), *said("Ulm</function></tool_call>")],
    ),
    "another element": Case(
        "<tool_call><function=search><param=q>Ulm</param></function>",
        [*called("{}", "search"), *said("<param=q>Ulm</param></function>")],
    ),
    "no name": Case("<tool_call><function=></function>", said("<tool_call><function=></function>")),
    "a name in quotes": Case('<tool_call><function="search">', said('<tool_call><function="search">')),
    "JSON": Case(
        '<tool_call>\n{"name": "search"}\n</tool_call>', said('<tool_call>\n{"name": "search"}\n</tool_call>')
    ),
    "name too long": Case(
        f"<function={'x' * HEAD_LIMIT}></function>", said(f"<function={'x' * HEAD_LIMIT}></function>")
    ),
    "whitespace before the name too long": Case(
        f"<tool_call>{' ' * HEAD_LIMIT}<function=search></function>",
        [*said("<tool_call>"), *called("{}", "search")],
    ),
    "key too long": Case(
        f"<function=search><parameter={'x' * HEAD_LIMIT}>\na\n</parameter></function>",
        [*called("{}", "search"), *said(f"<parameter={'x' * HEAD_LIMIT}>\na\n</parameter></function>")],
    ),
    "undeclared, another element": Case(
        "<tool_call><function=nope> <param=q>Ulm", said("<tool_call><function=nope> <param=q>Ulm")
    ),
    "cut behind the name": Case("<tool_call>\n<function=search>\n", cut("", "search")),
    "cut behind the tag": Case("a <tool_call>\n", said("a <tool_call>\n")),
    "spelled control tokens": Case(
        QWEN_FORM.spelled(q="Ulm").replace("<function", "<functions"),
        said(QWEN_FORM.spelled(q="Ulm").replace("<function", "<functions")),
        control=("<tool_call>", "</tool_call>"),
    ),
    "spelled control tokens behind a value": Case(
        "<function=search><parameter=q>a</parameter></tool_call></parameter></function>",
        asked("a</parameter></tool_call>"),
        control=("<tool_call>", "</tool_call>"),
    ),
}

GLM_CASES = {
    "the name on a line of its own": Case("<tool_call>\nsearch\n</tool_call>", called("{}", "search")),
    "the name, then words": Case("<tool_call>search it</tool_call>", said("<tool_call>search it</tool_call>")),
    "the name, then another call": Case(
        f"<tool_call>search\n{GLM_FORM.spelled(q='Ulm')}", [*said("<tool_call>search"), *asked("Ulm")]
    ),
    "no name": Case("<tool_call><arg_key>", said("<tool_call><arg_key>")),
    "cut behind the name": Case("<tool_call>search\n", said("<tool_call>search\n")),
    "no value": Case(
        "<tool_call>search<arg_key>q</arg_key></tool_call>",
        [*called("{}", "search"), *said("<arg_key>q</arg_key></tool_call>")],
    ),
    "no value, undeclared": Case(
        "<tool_call>nope<arg_key>q</arg_key></tool_call>", said("<tool_call>nope<arg_key>q</arg_key></tool_call>")
    ),
    "whitespace behind the key too long": Case(
        f"<tool_call>search<arg_key>q</arg_key>{' ' * HEAD_LIMIT}<arg_value>",
        [*called("{}", "search"), *said(f"<arg_key>q</arg_key>{' ' * HEAD_LIMIT}<arg_value>")],
    ),
    "cut behind the key": Case("<tool_call>search<arg_key>q</arg_key>\n<arg_va", cut("", "search")),
}

MINIMAX_CASES = {
    "no section round the call": Case(MINIMAX_FORM.call(q="Ulm"), asked("Ulm")),
    "no end of the call": Case(
        MINIMAX_FORM.spelled(q="Ulm").replace("</invoke>\n", "") + "b", [*asked("Ulm"), *said("b")]
    ),
    "cut behind the name": Case('<minimax:tool_call>\n<invoke name="search">\n', cut("", "search")),
    "words in the section": Case("<minimax:tool_call>\nso", said("<minimax:tool_call>\nso")),
}

DSML_CASES = {
    "no section round the call": Case(DSML_FORM.call(q="Ulm"), asked("Ulm")),
    "cut behind the name": Case(DSML_FORM.before + '<｜DSML｜invoke name="search">\n', cut("", "search")),
    "a number that is said to be a string": Case(
        DSML_FORM.turn(
            DSML_FORM.head.replace("NAME", "book")
            + DSML_FORM.parameter.replace("KEY", "count").replace("VALUE", "5")
            + DSML_FORM.end
        ),
        called('{"count": "5"}', "book"),
    ),
    "a string that is said to be JSON": Case(
        DSML_FORM.turn(
            DSML_FORM.head.replace("NAME", "search")
            + DSML_FORM.json_parameter.replace("KEY", "q").replace("VALUE", '"a\\nb"')
            + DSML_FORM.json_parameter.replace("KEY", "r").replace("VALUE", "[1, 2]")
            + DSML_FORM.json_parameter.replace("KEY", "s").replace("VALUE", "'tis")
            + DSML_FORM.json_parameter.replace("KEY", "t").replace("VALUE", "'it'")
            + DSML_FORM.end
        ),
        called('{"q": "a\\nb", "r": [1,2], "s": "\'tis", "t": "it"}', "search"),
    ),
    "nothing said of the value": Case(
        DSML_FORM.begun(q="Ulm").replace(' string="true"', ""),
        [*called("{}", "search"), *said('<｜DSML｜parameter name="q">Ulm')],
    ),
    "no newlines": Case(DSML_FORM.spelled(q="Ulm").replace("\n", ""), asked("Ulm")),
}


def cases(form: Form, own: dict[str, Case]) -> dict[str, Case]:
    schema = {} if form.json_parameter else by_schema(form)
    return {**calls(form), **ends(form), **typed(form), **schema, **own}


THINKING = {f"thinking: {name}": case for name, case in THINK.items() if name != "a call is text"}

XML_CORPUS = {
    "qwen3-coder": {**THINKING, **cases(QWEN_FORM, QWEN_CASES)},
    "glm-4.x": {
        **THINKING,
        **cases(GLM_FORM, GLM_CASES),
        **{f"one line: {name}": case for name, case in cases(GLM_47_FORM, {}).items()},
    },
    "minimax-m2": {**THINKING, **cases(MINIMAX_FORM, MINIMAX_CASES)},
    "deepseek-v3.2": {**THINKING, **cases(DSML_FORM, DSML_CASES)},
    "deepseek-v4": {**THINKING, **calls(DSML_V4_FORM)},
}
