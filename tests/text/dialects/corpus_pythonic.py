"""Outputs of models that write a list of calls in Python, and what the dialects make of them."""

from __future__ import annotations

from antiphon.text.dialects.keyed_calls import HEAD_LIMIT
from tests.text.dialects.corpus import Case, called, cut, said, thought

ULM = '[get_weather(city="Ulm")]'
LONG = "x" * 50_000

# How values are written, and what they say in JSON.
VALUES = {
    "double quotes": ('a="b c"', '{"a": "b c"}'),
    "single quotes": ("a='b c'", '{"a": "b c"}'),
    "other quotes in a string": ("""a='say "hi"', b="it's\"""", """{"a": "say \\"hi\\"", "b": "it's"}"""),
    "escaped quotes": (r"""a='it\'s', b="say \"hi\"" """, r"""{"a": "it's", "b": "say \"hi\""}"""),
    "escapes that JSON has": (
        r"""a='\\ \n \t \r \b \f \/ \u00e4 \ud83d\ude00'""",
        r'{"a": "\\ \n \t \r \b \f \/ \u00e4 \ud83d\ude00"}',
    ),
    "escapes that JSON lacks": (
        r"""a='\a\v\0\7\61\101\x41\xe4\U0001F600\x22\U0000d800'""",
        r'{"a": "\u0007\u000b\u0000\u00071AA\u00e4\ud83d\ude00\"\ud800"}',
    ),
    "escapes that are none": (
        r"""a='\q \x4g \u12 \U00110000 \N{DASH} \8 \x' """,
        r'{"a": "\\q \\x4g \\u12 \\U00110000 \\N{DASH} \\8 \\x"}',
    ),
    "escapes that break off": (r"""a='\18\x\n\u1\'\U12\\' """, r"""{"a": "\u00018\\x\n\\u1'\\U12\\"}"""),
    "line continued": ("a='b\\\nc'", '{"a": "bc"}'),
    "raw line breaks and tabs": ("a='b\nc\td'", r'{"a": "b\nc\td"}'),
    "end in a backslash": (r"a='\\', b=1", r'{"a": "\\", "b": 1}'),
    "numbers": ("a=3, b=-1.5e3, c=0", '{"a": 3, "b": -1.5e3, "c": 0}'),
    "words": ("a=True, b=False, c=None", '{"a": true, "b": false, "c": null}'),
    "words of JSON": ("a=true, b=false, c=null", '{"a": true, "b": false, "c": null}'),
    "words in strings": ("a='True', b=Truest", '{"a": "True", "b": Truest}'),
    "lists": ("a=[], b=[1, [True, 'x']]", '{"a": [], "b": [1, [true, "x"]]}'),
    "tuples": ("a=(1, (2, 3)), b=()", '{"a": [1, [2, 3]], "b": []}'),
    "dicts": ("a={}, b={'c': {'d': None}, \"e\": [1]}", '{"a": {}, "b": {"c": {"d": null}, "e": [1]}}'),
    "keys of dicts that are no strings": ("a={1: 'x', None: 2}", '{"a": {"1": "x", "None": 2}}'),
    "trailing commas": ("a=[1, 2,], b=(3,), c={'d': 4, },", '{"a": [1, 2], "b": [3], "c": {"d": 4}}'),
    "no whitespace": ("a=1,b='x',c=[1,2]", '{"a": 1, "b": "x", "c": [1, 2]}'),
    "whitespace everywhere": ("\n a = 1 ,\n\tb\t=\t[ 1 , 2 ]\n", '{"a": 1, "b": [1, 2]}'),
    "keys that Python would not take": (
        "from=1, user-id='x', $f=2, für=3",
        '{"from": 1, "user-id": "x", "$f": 2, "für": 3}',
    ),
    "brackets and commas in strings": ("a=')]},(', b=']'", '{"a": ")]},(", "b": "]"}'),
    "other scripts": ("a='日本語 😀', b='\u00a0'", '{"a": "日本語 😀", "b": "\u00a0"}'),
    "markers in strings": (
        "a='<|python_end|> <think> <|tool_call_end|>', b='[search()]'",
        '{"a": "<|python_end|> <think> <|tool_call_end|>", "b": "[search()]"}',
    ),
    "no key": ("'Ulm', 3", '{"Ulm", 3}'),
    "names that mean nothing": ("a=b c, d=x.y(1)", '{"a": b c, "d": x.y[1]}'),
    "comparison": ("a=1 <2, b=x<y", '{"a": 1 <2, "b": x<y}'),
    "two commas": ("a=1,, b=2", '{"a": 1, , "b": 2}'),
    "a comma first": (", a=1", '{, "a": 1}'),
    "long words": (f"a={LONG[:1500]}, {LONG[:1500]} = 1 2", f'{{"a": {LONG[:1500]}, {LONG[:1500]}: 1 2}}'),
    "long words with a space": (f"a={LONG[:1100]} b {LONG[:1100]}", f'{{"a": {LONG[:1100]} b {LONG[:1100]}}}'),
    "brackets that do not fit": ("a=[1}, b={2]", '{"a": [1}, "b": {2]}'),
    "empty strings": ("a='', b=\"\"", '{"a": "", "b": ""}'),
    "triple quotes": ('a="""b"""', '{"a": """b"""}'),
}

# Between the markers of whichever family, or without any.
LISTS = {
    "a call": (ULM, called()),
    "two calls": ("[search(q='a'), get_weather(city='Ulm')]", [*called('{"q": "a"}', "search"), *called()]),
    "three calls on lines": (
        "[\n  search(q='a'),\n  search(q='b'),\n  write-file(a=1),\n]",
        [*called('{"q": "a"}', "search"), *called('{"q": "b"}', "search"), *called('{"a": 1}', "write-file")],
    ),
    "no arguments": ("[search()]", called("{}", "search")),
    "no arguments, but whitespace": ("[ search ( \n ) ]", called("{}", "search")),
    "no comma between": ("[search() search()]", [*called("{}", "search"), *called("{}", "search")]),
    "lost bracket of the list": ("[search(a=1)", called('{"a": 1}', "search")),
    "lost bracket of the call": ("[search(a=[1]]", called('{"a": [1]}', "search")),
    "wrong bracket of the call": ("[search(a=1}]", [*called('{"a": 1}', "search"), *said("}]")]),
    "50 kB": (f"[search(q='{LONG}')]", called(f'{{"q": "{LONG}"}}', "search")),
    **{f"value: {name}": (f"[search({value})]", called(json, "search")) for name, (value, json) in VALUES.items()},
}

# What is no call, and stays as it is behind whatever opened it.
NO_LISTS = {
    "empty list": "[]",
    "undeclared": "[nope(a='[search()]')]",
    "undeclared, then a declared one": "[nope(a=1), search(q='b')]",
    "reference": "[1] Miller (2020)",
    "link": "[here](https://x.org) is it",
    "JSON": '[{"a": 1}]',
    "names": "[search, get_weather]",
    "attribute": "[tools.search(q=1)]",
    "one bracket": "[",
    "half a name": "[sea",
    "a name without a bracket": "[search",
    "call in a call": "[[search()]]",
    "name too long": f"[{'n' * HEAD_LIMIT}(a=1)]",
    "whitespace too long": f"[{' ' * HEAD_LIMIT}search(a=1)]",
    "not the name at once": "[#search(a=1)]",
}

CUT = {
    "behind the bracket": ("[search(", cut("{", "search")),
    "in a key": ("[search(ab", cut("{ab", "search")),
    "behind a key": ("[search(ab=", cut('{"ab": ', "search")),
    "in a word": ("[search(ab=Tru", cut('{"ab": Tru', "search")),
    "behind a word": ("[search(ab=True", cut('{"ab": true', "search")),
    "behind a comma": ("[search(a=1, ", cut('{"a": 1', "search")),
    "in a string": ("[search(a='b c", cut('{"a": "b c', "search")),
    "in an escape": (r"[search(a='b\u00", cut('{"a": "b', "search")),
    "behind a backslash": ("[search(a='b\\", cut('{"a": "b', "search")),
    "behind a string": ("[search(a='b'", cut('{"a": "b"', "search")),
    "in a list": ("[search(a=[1, 2", cut('{"a": [1, 2', "search")),
    "before the end of the list": ("[search(a=1)", called('{"a": 1}', "search")),
    "between calls": ("[search(a=1), ", called('{"a": 1}', "search")),
    "in the second name": ("[search(a=1), sea", [*called('{"a": 1}', "search"), *said("sea")]),
    "in the second call": ("[search(a=1), search(b=", [*called('{"a": 1}', "search"), *cut('{"b": ', "search")]),
}

LLAMA_PYTHONIC = {
    **{f"bare: {name}": Case(output, fragments) for name, (output, fragments) in LISTS.items()},
    **{
        f"marked: {name}": Case(f"<|python_start|>{output}<|python_end|>", fragments)
        for name, (output, fragments) in LISTS.items()
        if name not in ("50 kB", "wrong bracket of the call")
    },
    **{f"no call: {name}": Case(output, said(output)) for name, output in NO_LISTS.items()},
    **{
        f"no call, marked: {name}": Case(f"<|python_start|>{output}", said(f"<|python_start|>{output}"))
        for name, output in NO_LISTS.items()
    },
    **{f"cut {name}": Case(output, fragments) for name, (output, fragments) in CUT.items()},
    "nothing": Case("", []),
    "text": Case("Hello there.", said("Hello there.")),
    "whitespace": Case(" \n", []),
    "whitespace before a call": Case(f"\n\n{ULM}", called()),
    "text before a call": Case(f"Let me see: {ULM}", said(f"Let me see: {ULM}")),
    "text before a marked call": Case(f"Let me see.\n<|python_start|>{ULM}", [*said("Let me see."), *called()]),
    "text behind a call": Case(f"{ULM}\nDone.", [*called(), *said("Done.")]),
    "text behind a marked call": Case(f"<|python_start|>{ULM}<|python_end|>\nDone.", [*called(), *said("Done.")]),
    "two lists": Case(f"{ULM}\n{ULM}", [*called(), *called()]),
    "two lists and a semicolon": Case(f"{ULM}; {ULM}", [*called(), *called()]),
    "two marked lists": Case(f"<|python_start|>{ULM}<|python_end|><|python_start|>{ULM}", [*called(), *called()]),
    "undeclared behind a call": Case(
        "[search(a=1), nope(b=')')]", [*called('{"a": 1}', "search"), *said("nope(b=')')]")]
    ),
    "no name behind a call": Case("[search(a=1), 'x']", [*called('{"a": 1}', "search"), *said("'x']")]),
    "marker alone": Case("<|python_start|>", said("<|python_start|>")),
    "marker and whitespace": Case("<|python_start|> \n", said("<|python_start|> \n")),
    "marker before other code": Case("<|python_start|>print(1)<|python_end|>", said("<|python_start|>print(1)")),
    "markers round text": Case("a<|python_end|>b", said("ab")),
    "half a marker": Case("a <|python_", said("a <|python_")),
    "marker in the arguments": Case("[search(a=[1, 2 <|python_end|> b", [*called('{"a": [1, 2', "search"), *said("b")]),
    "marker in a key": Case("[search(ab<|python_end|> b", [*called("{ab", "search"), *said("b")]),
    "next call in the arguments": Case(
        f"[search(a=1, <|python_start|>{ULM}", [*called('{"a": 1', "search"), *called()]
    ),
    "half a marker in the arguments": Case("[search(a=1 <|python_", cut('{"a": 1 <|python_', "search")),
    "half a marker in the arguments, after all": Case(
        "[search(a=1 <|python_, b=2)]", called('{"a": 1 <|python_, "b": 2}', "search")
    ),
    "marker in the head": Case(f"[sea<|python_start|>{ULM}", [*said("[sea"), *called()]),
    "marker behind the marker": Case(f"<|python_start|><|python_start|>{ULM}", [*said("<|python_start|>"), *called()]),
    "calls are not allowed": Case(f"{ULM}<|python_start|>", said(f"{ULM}<|python_start|>"), calls=False),
    "spelled control tokens": Case(
        f"<|python_start|>{ULM}<|python_end|>",
        said(f"<|python_start|>{ULM}<|python_end|>"),
        control=("<|python_start|>", "<|python_end|>"),
    ),
    "spelled control token in the arguments": Case(
        "[search(a=b<|python_end|>)]", called('{"a": b<|python_end|>}', "search"), control=("<|python_end|>",)
    ),
}

LFM2_LIST = f"<|tool_call_start|>{ULM}<|tool_call_end|>"
LFM2 = {
    **{
        name: Case(f"<|tool_call_start|>{output}<|tool_call_end|>", fragments)
        for name, (output, fragments) in LISTS.items()
        if name != "wrong bracket of the call"
    },
    **{
        f"no call: {name}": Case(f"<|tool_call_start|>{output}", said(f"<|tool_call_start|>{output}"))
        for name, output in NO_LISTS.items()
    },
    **{f"cut {name}": Case(f"<|tool_call_start|>{output}", fragments) for name, (output, fragments) in CUT.items()},
    "no marker": Case(ULM, said(ULM)),
    "text round it": Case(f"Well.\n{LFM2_LIST}\nDone.", [*said("Well."), *called(), *said("Done.")]),
    "whitespace in the markers": Case(f"<|tool_call_start|> {ULM} \n<|tool_call_end|>", called()),
    "thinking": Case(f"<think>a {LFM2_LIST}</think>{LFM2_LIST}", [*thought(f"a {LFM2_LIST}"), *called()]),
    "text behind the list": Case(
        f"<|tool_call_start|>{ULM} oops<|tool_call_end|>", [*called(), *said("oops<|tool_call_end|>")]
    ),
    "closing marker in the arguments": Case(
        "<|tool_call_start|>[search(a=1<|tool_call_end|>b", [*called('{"a": 1', "search"), *said("b")]
    ),
}
