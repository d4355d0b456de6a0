"""Regular expressions of Rust's syntax over an input, as llguidance follows them over its escaped text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.text.patterns.regex import MAX_NESTING, read_regex
from tests.text.escaped import escaped, input_matcher, passes

CASES: dict[str, tuple[str, list[str], list[str]]] = {
    "the whole text": (r"^a\n$", ["a\n"], ["a", "a\n\n"]),
    "anchors round alternatives": (r"^a|b$", ["a", "b"], ["ab"]),
    "anchors in groups at the edge": (r"(?:^|\A)a(\z|$)", ["a"], ["aa"]),
    "a lazy quantifier": (r'a*?"+?b{1,2}?', ['"b', 'aa""bb'], ["b", '"bbb']),
    "groups with names": (r'(?P<a>")(?<b>\\)', ['"\\'], ['"']),
    "nothing": ("", [""], ["a"]),
    "alternatives of nothing": ("a||(|b)", ["", "a", "b"], ["ab"]),
    "a dot": (".", ["a", '"', "\\", "\r", "é", "\x00"], ["\n", "", "aa"]),
    "a dot that is everything": ("(?s).", ["\n", '"'], [""]),
    "flags for a group": (r"(?s:.)(?i:ab\n)(?-i:c)", ["\nAb\nc"], ["\nab\nC"]),
    "flags for the rest of a group": ("((?i)a|b)c", ["Ac", "Bc"], ["AC"]),
    "flags that are taken away": ("(?i)a(?-i)b", ["Ab"], ["AB"]),
    "flags that change nothing": ("(?mu)a", ["a"], ["A"]),
    "no case where there is none": (r"(?i)1\n\"ß", ['1\n"ß'], ["1"]),
    "a class in any case": (r'(?i)[a-c"]', ["B", '"'], ["d"]),
    "escaped characters": (r"\a\f\t\n\r\v\.\-\/\\", ["\a\f\t\n\r\v.-/\\"], ["\a"]),
    "hexadecimal ones": (r"\x0A\x{22}\u005C\u{1b}\U00000041\U{1F600}", ['\n"\\\x1bA😀'], ["\n"]),
    "digits": (r"\d\D", ["1\n", '1"', "٣a"], ["11", "a\n"]),
    "words": (r"\w\W", ["é\n", "_\\"], ["aa", "\na"]),
    "whitespace": (r"\s\S", ["\n\\", "\ta", "\v\x1f", "\u2003\x00"], ["\x1fa", "a\n", "\n\n"]),
    "a class": ('[a\\n"]+', ["a", '\n"a'], ["b", "\\", ""]),
    "a class of escapes alone": (r"[\n\t\x00\x1f\x0b]", ["\n", "\x00", "\x1f", "\v"], ["a", "\\", "\x10"]),
    "a class that is not": (r'[^a"]', ["b", "\n", "\\", "é"], ["a", '"']),
    "a class of all but escapes": (r"[^\x00-\x1f\x22\\]*", ["abc é", ""], ["\n", '"', "\\"]),
    "a range": ("[!-~]", ['"', "\\", "a"], ["\n", " "]),
    "a range of what is escaped": (r"[\x00-\x09]", ["\x00", "\b", "\t"], ["\n"]),
    "what stands for itself in a class": (r"[]a][^]a][-a][a-][\d-]", ["]b--1", "ax-a-"], ["a]---", "]baa\n"]),
    "hyphens in the middle": ("[a-c-e]", ["-", "b", "e"], ["d"]),
    "other signs in a class": (r"[.*+?{}()|$/&~#]+", [".*+?{}()|$/&~#"], ["a"]),
    "a caret in a class": (r"[a^\^]", ["^", "a"], ["b"]),
    "classes in a class": (r'[a[\n"]]', ["a", "\n", '"'], ["\\"]),
    "what classes share": (r'[\s"&&[^\t]]', ["\n", '"', " "], ["\t", "a"]),
    "what classes share, of what is not": (r"[^\s&&[\n\t]]", [" ", '"', "a"], ["\n", "\t"]),
    "a class without another": (r'["\\a-c--[b"]]', ["\\", "a"], ["b", '"', "d"]),
    "what only one has": (r"[\na~~\nb]", ["a", "b"], ["\n", "c"]),
    "operators in a row": (r'[\x00-c&&["\na-c]--[a"]]', ["\n", "b"], ["a", '"', "\t"]),
    "named classes": (r"[[:alpha:]][[:^alpha:]]", ["a\n", 'b"'], ["aa", "\n\n"]),
    "named classes of signs": (r"[[:punct:]][[:graph:]][[:print:]]", ['"\\ ', '\\""'], ['"\n ', "a\\ "]),
    "named classes of whitespace": (r"[[:blank:]][[:space:]][[:cntrl:]]", ["\t\v\x00", " \n\x1f"], ["\n\n\n"]),
    "the named class of all": (r"[[:ascii:]]", ['"', "\n", "a"], ["é"]),
    "categories": (r"\pL\p{Lu}\P{L}", ["aB\n", 'éÀ"'], ["ab\n", "aBc"]),
    "categories of signs": (r"\p{Po}\pP\PP", ['"\\\n', "!(a"], ['a"\n', '""\\']),
    "categories of controls": (r"\p{Cc}\pC[\P{Cc}]", ['\n\x00"', "\x7f\x1fa"], ["aaa", "\n\n\n"]),
    "counts": (r'"{2}\n{1,}a{0,1}', ['""\n', '""\n\na'], ['"\n', '""a']),
    "no count": ("a{0}b", ["b"], ["ab"]),
}


@pytest.mark.parametrize("case", CASES)
def test_regex(case: str) -> None:
    expression, good, bad = CASES[case]
    start = input_matcher(expression, "regex")
    for text in good:
        assert passes(start, escaped(text)), text
    for text in bad:
        assert not passes(start, escaped(text)), text


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("(?=a)", "(?="),
        ("(?!a)", "(?!"),
        ("(?<=a)", "(?<"),
        ("(?<!a)", "(?<"),
        ("(?P=a)", "(?P"),
        ("(?x)a b", "'x'"),
        ("(?R:a)", "'R'"),
        ("(?i-s", "(?i"),
        ("(?-u:a)", "bytes"),
        (r"\bab", r"\b"),
        (r"\Ba", r"\B"),
        (r"a\<", r"\<"),
        (r"(a)\1", r"\1"),
        (r"\Ga", r"\G"),
        ("a\\", "`\\`"),
        (r"[\b]", r"\b"),
        (r"\p{Greek}", "'Greek'"),
        (r"\p{scx=Latn}", r"\p"),
        (r"\x{110000}", "110000"),
        (r"\u{D800}", "D800"),
        (r"\x{}", r"\x"),
        ("a^b", "anchor"),
        ("a(^b)", "anchor"),
        ("(a$)+", "anchor"),
        ("(a", "not closed"),
        ("a)", "not opened"),
        ("[a", "not closed"),
        ("[]", "not closed"),
        ("[&&a]", "empty"),
        ("[a&&]", "empty"),
        ("[b-a]", "range"),
        (r"[a-\d]", "range"),
        ("[[:nothing:]]", "'nothing'"),
        ("*a", "repeat"),
        ("a|+", "repeat"),
        ("({2})", "repeat"),
        ("a**", "repeat"),
        ("a{", "numbers"),
        ("a{,2}", "numbers"),
        ("a{2,1}", "order"),
        ("(" * (MAX_NESTING + 1), "nested"),
        ("[" * (MAX_NESTING + 1), "nested"),
    ],
)
def test_what_cannot_be_taken_is_named(expression: str, word: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_regex(expression, whole=True)
    assert word in str(refused.value)


@pytest.mark.parametrize("expression", ["^a", "a$", r"\Aa", "a+?", "a??", "a{2}?"])
def test_inside_a_grammar_edges_and_laziness_would_mean_something_else(expression: str) -> None:
    assert read_regex(expression, whole=True)
    with pytest.raises(ValueError):
        read_regex(expression)


ATOMS = ["a", "b", r"\n", r"\"", r"\\", ".", "[^a]", '[\\n"a-c]', r'[^"\\]', r"\d", r"\D", r"\w", r"\W", "é"]
ATOMS += ["(?s:.)", r"\x1b", r"[\x00-\x1f]", "(?i:B)", '(?i:[^"b])', "1"]
TEXTS = st.text('ab"\\\n\t\x00\x1bBé1/😀n', max_size=6)


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: f"(?:{'|'.join(options)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])).map(
            lambda it: f"(?:{it[0]}){it[1]}"
        ),
    )


EXPRESSIONS = st.recursive(st.sampled_from(ATOMS), compound, max_leaves=8)


@settings(deadline=None, max_examples=100)
@given(EXPRESSIONS, st.lists(TEXTS, max_size=8), st.data())
def test_a_text_matches_if_and_only_if_its_escaped_text_matches_the_grammar(
    expression: str, texts: list[str], data: st.DataObject
) -> None:
    """Python's own engine is the judge, for what both notations read in the same way."""
    start = input_matcher(expression, "regex")
    judge = re.compile(expression)
    for text in (*texts, data.draw(st.from_regex(judge, fullmatch=True, alphabet=ALPHABET))):
        assert passes(start, escaped(text)) == (judge.fullmatch(text) is not None), text


# Characters of which Python and Rust agree what they are.
ALPHABET = st.sampled_from('abcB1"\\\n\t\x00\x1bé/ n😀')
PIECES = [
    "a",
    "\\",
    "(",
    ")",
    "[",
    "]",
    "?",
    "*",
    "+",
    "{",
    "}",
    "1",
    ",",
    "^",
    "-",
    "&&",
    "--",
    "~~",
    "|",
    ":",
    "P<a>",
]
PIECES += ["(?", "i", "[:", ":]", "alpha", "d", "p", "u", "x", "\n", "$", ".", "é", "<", "="]


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=15).map("".join), st.booleans())
def test_nothing_but_a_value_error_comes_of_nonsense(expression: str, whole: bool) -> None:
    try:
        read_regex(expression, whole=whole)
    except ValueError:
        return
    if whole:
        input_matcher(expression, "regex")
