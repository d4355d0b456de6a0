"""Grammars over an input, as llguidance follows them over the JSON string that the input stands in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.text.escaped_grammar import MAX_DEFINITION, MAX_LEVELS, escaped_grammar
from antiphon.text.lark import Lark
from antiphon.text.messages import InputGrammar, ToolDefinition
from antiphon.text.patterns import regex
from antiphon.text.patterns.lark import MAX_NESTING
from tests.text.escaped import escaped, input_matcher, matcher, passes, takes

# What Codex's `apply_patch` takes, in rules of our own.
PATCH = r"""
start: opening section+ closing
opening: "*** Begin Patch" LF
closing: "*** End Patch" LF?

// What can become of a file.
section: added | removed
       | changed
added: "*** Add File: " path LF new_line+
removed: "*** Delete File: " path LF
changed: "*** Update File: " path LF renamed? changes?
renamed: "*** Move to: " path LF

changes: (place | line)+ last?
place: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF -> edit
last: "*** End of File" LF
new_line: "+" /(.*)/ LF
path: /(.+)/

%import common.LF
"""
GOOD_PATCH = """\
*** Begin Patch
*** Add File: notes/"first".txt
+He said "no\\n" and\tleft.
+
+ünï → 😀 \\ /
*** Update File: src/a.py
*** Move to: src/b.py
@@ def f():
-    return "\\d+"
+    return r"\\d+\\\\"
@@
 # the end\x1b[0m
*** End of File
*** Delete File: C:\\old
*** End Patch
"""

JSON = r"""
start: value
?value: object | list | STRING | NUMBER | "true" | "false" | "null"
object: "{" [pair ("," pair)*] "}"
pair: STRING ":" value
list: "[" [value ("," value)*] "]"
%import common.ESCAPED_STRING -> STRING
%import common.SIGNED_NUMBER -> NUMBER
%import common.WS
%ignore WS
"""
SUM = """
start: sum
sum: product (("+" | "-") product)*
product: atom (("*" | "/") atom)*
atom: INT | "(" sum ")"
%import common (INT, WS)
%ignore WS
"""


@pytest.mark.parametrize(
    "patch",
    [
        GOOD_PATCH,
        GOOD_PATCH.removesuffix("\n"),
        "*** Begin Patch\n*** Delete File: a\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n*** End Patch",
        "*** Begin Patch\n*** Add File: a\n+*** End Patch\n*** End Patch\n",
        "*** Begin Patch\n*** Update File: \\\n@@\n+\\\\\n-\\n\n*** End Patch\n",
    ],
)
def test_a_patch_passes(patch: str) -> None:
    assert takes(PATCH, patch)


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "*** Begin Patch\n*** End Patch",
        GOOD_PATCH.replace("*** End Patch\n", ""),
        GOOD_PATCH.replace("*** Begin Patch\n", ""),
        GOOD_PATCH + "\n",
        GOOD_PATCH.replace("-    return", "    return", 1).replace("    return", "return", 1),
        "*** Begin Patch\n*** Add File: a\n*** End Patch",
        "*** Begin Patch\n*** Delete File: \n*** End Patch",
        "*** Begin Patch\n*** Move to: a\n*** End Patch",
    ],
)
def test_what_is_no_patch_does_not(patch: str) -> None:
    assert not takes(PATCH, patch)


def test_the_text_is_escaped_in_one_way_only() -> None:
    start = input_matcher('start: "a\\n\\"\\u001b/é"')
    assert passes(start, r"a\n\"\u001b/é")
    for other in (r"\u0061\n\"\u001b/é", "a\n" r"\"\u001b/é", r"a\u000a\"\u001b/é", r'a\n"\u001b/é', r"a\n\"\u001B/é"):
        assert not passes(start, other), other
    assert not passes(start, r"a\n\"\u001b\/é")
    for other in (r"\N", r"\u000B", r"\U000b"):
        assert not passes(input_matcher(r"(?i)[a\n\x0b]", "regex"), other), other


def test_the_arguments_of_a_call_are_the_input_in_an_object() -> None:
    lark = Lark({})
    tool = ToolDefinition("patch", strict=True, input=InputGrammar("lark", PATCH))
    start = matcher(lark.grammar(lark.arguments(tool)))
    assert passes(start, json.dumps({"input": GOOD_PATCH}, ensure_ascii=False))
    assert passes(start, json.dumps({"input": GOOD_PATCH}, ensure_ascii=False, indent=2))
    assert passes(start, '{"input":"' + escaped(GOOD_PATCH) + '"}')
    for other in (GOOD_PATCH, {}, {"input": ""}, {"input": GOOD_PATCH, "a": 1}, {"patch": GOOD_PATCH}):
        assert not passes(start, json.dumps(other, ensure_ascii=False))


def test_several_grammars_stand_side_by_side_and_equal_ones_are_one() -> None:
    lark = Lark({})
    words = [InputGrammar("lark", 'start: word "!"\nword: "a"'), InputGrammar("lark", 'start: word "?"\nword: "\\n"')]
    first, second, third = (lark.input_text(grammar) for grammar in (*words, InputGrammar("regex", 'b"')))
    assert lark.input_text(words[0]) == first
    start = matcher(lark.grammar(f"({first} | {second} | {third})*"))
    assert passes(start, escaped('a!\n?b"a!'))
    assert not passes(start, escaped("a?"))
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    "grammar",
    [
        InputGrammar("regex", "(?i:a)[^b]*"),
        InputGrammar("lark", 'start: "A"i other*\nother: OTHER\nOTHER: /(?s:.)/ & ~"b"'),
    ],
)
def test_a_text_that_is_not_escaped_ends_at_a_marker(grammar: InputGrammar) -> None:
    lark = Lark({})
    text = lark.input_before(grammar, without="</x>", end="\n</x>")
    start = matcher(lark.grammar(f'"<x>" {text} "."'))
    for inside in ("a", 'A"\\', "a\n\t", "a</x", "aé/"):
        assert passes(start, f"<x>{inside}\n</x>."), inside
    for inside in ("", "ab", "a</x>a", "a\n</x>"):
        assert not passes(start, f"<x>{inside}\n</x>."), inside


def test_a_text_that_is_not_escaped_cannot_recur() -> None:
    with pytest.raises(ValueError, match="recursive"):
        Lark({}).input_before(InputGrammar("lark", SUM), without="<", end="<")


CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "strings, alternatives and groups": ('start: "a" ("b" | "\\n")+', ["ab", "a\nb\n"], ["a", "b", "a\\n"]),
    "an alternative on the next line": ('start: "a"\n  | "b"\n\n  | "c"\nother: "d"', ["a", "b", "c"], ["d"]),
    "an empty alternative": ('start: "a" | \nb: "b"', ["", "a"], ["b"]),
    "an empty string": ('start: "" "a"', ["a"], [""]),
    "a line feed in brackets": ('start: ("a"\n "b"\n)', ["ab"], ["a"]),
    "brackets for what may be left out": ('start: "a" ["\\t"] "b"', ["ab", "a\tb"], ["a\t"]),
    "quantifiers": ('start: "a"? "b"* "c"+', ["c", "abbcc"], ["ab", "aac"]),
    "counts": ('start: "\\n"{2} "b"{1,2} "c"{,1} "d"{1,}', ["\n\nbd", "\n\nbbcdd"], ["\nbd", "\n\nbbbd", "\n\nbccd"]),
    "counts as Lark has them": ('start: "a"~2 "\\""~1..2', ['aa"', 'aa""'], ['a"', "aa", 'aa"""']),
    "none at all": ('start: "a" "b"{0} c{0,0}\nc: "c"', ["a"], ["ab", "ac"]),
    "small and capital letters": ('start: "Sel\\n1"i', ["sel\n1", "SEL\n1", "Sel\n1"], ["seln1"]),
    "a range": (r'start: "a".."c" "\t".."\n"', ["a\t", "c\n"], ["d\t", "ad", "a\r"]),
    "a range with quotes in it": ('start: " ".."~"', ['"', "\\", "a"], ["\n", "é"]),
    "names for a tree": ('start: "a" -> first | b -> second\n?b: "b"\n!c: "c"', ["a", "b"], ["c"]),
    "terminals": ('start: A B\nA: B "\\""\nB: /[x\\\\]/', ['x"x', '\\"\\'], ["x"]),
    "flags of a regular expression": ("start: /a.b/is", ["a\nB", "AxB"], ["ab"]),
    "a slash in one": (r"start: /a\/\n/", ["a/\n"], ["a\\/\n", "a/"]),
    "comments": ("# one\nstart: A // two\nA: /#x/ # three", ["#x"], [""]),
    "both": ("start: A\nA: /[a\\n]+/ & /(?s:..)/", ["a\n", "\n\n"], ["a", "aaa"]),
    "not": ('start: A\nA: /(?s:.{1,2})/ & ~"\\"" & ~/[a-c]+/', ["\n", '""', "da"], ['"', "ab", ""]),
    "not, by itself": ('start: "<" A\nA: ~/[a"]*/', ["<b", '<a\\"', "<\n"], ["<", '<a"']),
    "what may be ignored": (
        'start: "a" b\nb: "b"+ /c d/\n%ignore /[ \\n]/\n%ignore "\\t"',
        ["abc d", " a\n\tb bc d", "abc d\n "],
        ["abcd", "abc  d", "ab\rc d"],
    ),
    "names from `common`": (
        "start: INT number NL\nnumber: NUMBER\n%import common.INT\n%import common (NUMBER,)\n"
        "%import common.NEWLINE -> NL",
        ["1.5\n", "12\r\n\n"],
        ["1.5", "a\n"],
    ),
    "options of llguidance that say nothing": ('%llguidance {}\nstart: "a"', ["a"], ["b"]),
    "names with hyphens": ('start: a-b\na-b: "a"', ["a"], ["b"]),
    "a rule of more rules": (SUM, ["1", "(1+2) * 3", " ((7))\n", "1 -\t(2/ 3)"], ["", "(1", "1+", "1)"]),
    "recursion with strings and whitespace": (
        JSON,
        ['{"a": [1, -2.5e3, "b\\"c\\n", null], "": {}}', '[\n\t"x",\r\n ["\\\\"]\n]\n', "true", '""'],
        ["[1,]", '{"a"}', "[", '"a', "{true: 1}"],
    ),
    "recursion on the left": ('start: list\nlist: list "," X | X\nX: /[^,\\\\]/', ['a,"', "\n,\n"], ["a,", ",a"]),
    "recursion with an empty end": ('start: s\ns: "(" s ")" | ', ["", "(())"], ["(", "())"]),
    "recursion counted": ('start: s{1,2} "."\ns: "(" [s] ")"', ["().", "(())()."], [".", "()()()."]),
}


@pytest.mark.parametrize("case", CASES)
def test_lark(case: str) -> None:
    definition, good, bad = CASES[case]
    start = input_matcher(definition)
    for text in good:
        assert passes(start, escaped(text)), text
    for text in bad:
        assert not passes(start, escaped(text)), text


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("DIGIT", ["7"], ["77", "a"]),
        ("HEXDIGIT", ["a", "F"], ["g"]),
        ("INT", ["012"], ["-1"]),
        ("SIGNED_INT", ["-1", "+2", "3"], ["1.0"]),
        ("DECIMAL", ["1.", ".5", "1.5"], ["1", "."]),
        ("FLOAT", ["1e5", "1.5E-3", "2."], ["1"]),
        ("SIGNED_FLOAT", ["-1e5", "+.5"], ["-1"]),
        ("NUMBER", ["1", "1.5", "1e5"], ["-1"]),
        ("SIGNED_NUMBER", ["-1", "+1.5e+7"], ["--1"]),
        ("ESCAPED_STRING", ['""', '"a\\"b"', '"\\\\"'], ['"', '"""', '"\\"']),
        ("LCASE_LETTER", ["a"], ["A"]),
        ("UCASE_LETTER", ["A"], ["a"]),
        ("LETTER", ["a", "Z"], ["1"]),
        ("WORD", ["abC"], ["a1"]),
        ("CNAME", ["_a1"], ["1a"]),
        ("WS_INLINE", [" \t"], ["\n"]),
        ("WS", [" \t\f\r\n"], ["a"]),
        ("CR", ["\r"], ["\n"]),
        ("LF", ["\n"], ["\r"]),
        ("NEWLINE", ["\n", "\r\n\n"], ["\r"]),
        ("SH_COMMENT", ["# a\\"], ["# a\n"]),
        ("CPP_COMMENT", ['// "a"'], ["/ a"]),
        ("C_COMMENT", ["/* a\n* b **/", "/**/"], ["/* a", "/* a */ */"]),
        ("SQL_COMMENT", ["-- a"], ["- a"]),
    ],
)
def test_common_terminals(name: str, good: list[str], bad: list[str]) -> None:
    start = input_matcher(f"start: {name}\n%import common.{name}")
    assert [passes(start, escaped(text)) for text in good] == [True] * len(good)
    assert [passes(start, escaped(text)) for text in bad] == [False] * len(bad)


@pytest.mark.parametrize(
    ("definition", "word"),
    [
        ("", "`start`"),
        ('begin: "a"', "`start`"),
        ("start: a", "`a`"),
        ("start: a\n%ignore b", "`a`"),
        ('start: "a"\n%ignore B', "`B`"),
        ('start: "a"\nstart: "b"', "twice"),
        ("start: <|end|>", "<|end|>"),
        ("start: <[12]>", "<[12]>"),
        ("start: @other", "@other"),
        ("start: %json {}", "%json"),
        ('start: %regex {"substring_chars": "ab"}', "%regex"),
        ('%override start: "a"', "%override"),
        ("%declare A", "%declare"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "%llguidance"),
        ('start[lazy]: /a+/ "b"', "lazy"),
        ('start.2: "a"', "priorities"),
        ('start{x}: "a"', "templates"),
        ("%import other.A\nstart: A", "common"),
        ("%import .a.B\nstart: B", "`.`"),
        ("%import common.NO\nstart: NO", "common.NO"),
        ("%import common.INT\n%import common.INT\nstart: INT", "twice"),
        ('start: "a" & "b"', "&"),
        ('start: ~"a"', "~"),
        ("start: A\nA: ~~/a/", "`~`"),
        ("start: A\nA: B\nB: A", "`A`"),
        ("start: A\nA: start", "`A`"),
        ('start: "a".."bc"', "range"),
        ('start: "a"..b\nb: "b"', "`b`"),
        ('start: "c".."a"', "range"),
        ('start: ("a"', "end of the grammar"),
        ('start: "a")', "`)`"),
        ("start: *", "`*`"),
        ('start "a"', '`"a"`'),
        ('start: "a" =', "`=`"),
        ("start: 'a'", "`'`"),
        ('start: "a', '`"`'),
        ('start: "a"{b}', "`b`"),
        ('start: "a"{1', "end of the grammar"),
        ('start: "a" ->', "end of the grammar"),
        ("\n\nstart: /(?=a)/", "line 3"),
        ("start: /a+?/", "lazy"),
        ("start: /^a/", "anchor"),
        ("start: /a/x", "'x'"),
        ("start: " + "(" * (MAX_NESTING + 1) + '"a"' + ")" * (MAX_NESTING + 1), "nested"),
        ('start: "' + "a" * MAX_DEFINITION + '"', str(MAX_DEFINITION)),
        ('start: WS start X | "."\nWS: /[ \\n]*/\nX: /"[a-z]*"/', "recursive"),
    ],
)
def test_what_cannot_be_taken_is_named(definition: str, word: str) -> None:
    with pytest.raises(ValueError) as refused:
        escaped_grammar(InputGrammar("lark", definition), "input_0")
    assert word in str(refused.value)


def test_the_deepest_nesting_that_is_taken() -> None:
    deep = "(?:a|b" * regex.MAX_NESTING + "c" + ")+" * regex.MAX_NESTING
    grammar = "start: " + "(b | c " * MAX_NESTING + f"/{deep}/" + ")*" * MAX_NESTING + '\nb: "b"\nc: "c"'
    text = "b" + "c" * MAX_NESTING + "a"
    assert takes(grammar, text)
    assert takes(f'{grammar} | "(" start ")"', f"b({text}){text[2:]}")


def chained(rules: int, last: str) -> str:
    """Rules of which each needs the next one."""
    return "\n".join(["start: r0", *(f"r{n}: r{n + 1}" for n in range(rules)), f"r{rules}: {last}"])


@pytest.mark.parametrize("last", ['"\\n"', '"\\n" | "(" r0 ")"'])
def test_definitions_within_definitions_go_as_deep_as_the_stack_allows(last: str) -> None:
    """Far beyond the limit, llguidance overflows it, and ends the process."""
    assert takes(chained(MAX_LEVELS // 3, last), "\n")
    with pytest.raises(ValueError, match="levels deep"):
        escaped_grammar(InputGrammar("lark", chained(MAX_LEVELS, last)), "input_0")


def test_recursion_is_taken_where_a_backslash_can_be_told() -> None:
    """The terminal that goes on with a line feed stands beside none that begins with another escape."""
    definition = 'start: WS start X | "."\nWS: /[ \\n]*/\nX: /[a-z]+/'
    assert takes(definition, " \n.ab")
    assert not takes(definition, " \n.")


PIECES = ["start", ":", '"a"', "/b/", "|", "(", ")", "[", "]", "{", "}", "1", ",", "..", "~", "&", "*", "?", "!", "A"]
PIECES += ["->", ".", "=", "\n", " ", "%ignore", "%import", "common", "%llguidance", "//", "#", '"', "/", "\\", "\r"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join), st.booleans())
def test_nothing_but_a_value_error_comes_of_nonsense(definition: str, begun: bool) -> None:
    grammar: Any = InputGrammar("lark", f'start: "a" {definition}' if begun else definition)
    try:
        _, rules = escaped_grammar(grammar, "input_0")
    except ValueError:
        return
    assert rules
