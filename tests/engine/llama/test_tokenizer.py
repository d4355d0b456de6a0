"""Text to tokens and back: every text comes back, and control tokens are never made of plain text."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.base import Tokenizer
from antiphon.engine.llama import LlamaBackend, load
from antiphon.engine.llama.fewest import TokenBound
from antiphon.engine.llama.runs import RUN_LIMIT, long_run_cuts, outside
from antiphon.engine.llama.tokenizer import BETWEEN_WORDS, PART
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import generate, ids
from tests.tiny_model import Tiny, write_tiny_model

TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.text("ab \n\t<|>im_endo", max_size=200)


@pytest.fixture(scope="module")
def tiny_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    backend = load(write_tiny_model(tmp_path_factory.mktemp("model") / "m.gguf"), threads=1)
    yield backend.tokenizer
    backend.close()


@pytest.fixture(params=["tiny", "real"])
def tokenizer(request: pytest.FixtureRequest, tiny_tokenizer: Tokenizer) -> Tokenizer:
    if request.param == "tiny":
        return tiny_tokenizer
    backend: LlamaBackend = request.getfixturevalue("shared_real")
    return backend.tokenizer


def text_of(tokenizer: Tokenizer, tokens: list[int]) -> bytes:
    pieces = {token: tokenizer.piece(token) for token in set(tokens)}
    return b"".join(pieces[token] for token in tokens)


def test_every_text_comes_back(tokenizer: Tokenizer) -> None:
    # The real model's vocabulary lacks some bytes, such as 06 and F1.
    known = {piece[0] for token in range(tokenizer.size) if len(piece := tokenizer.piece(token)) == 1}
    assert len(known) > 220

    @settings(max_examples=300, deadline=None)
    @given(TEXT, st.booleans())
    def check(drawn: str, control: bool) -> None:
        text = "".join(letter for letter in drawn if known.issuperset(letter.encode()))
        assert text_of(tokenizer, tokenizer.encode(text, control=control)) == text.encode()

    check()


@pytest.mark.parametrize("text", ["", "\0", "a\0b\0", "\ufeff", "e\u0301", "👩‍👩‍👧", " ", "\r\n\r\n"])
def test_odd_texts_come_back(tokenizer: Tokenizer, text: str) -> None:
    assert text_of(tokenizer, tokenizer.encode(text, control=False)) == text.encode()


def test_empty_text_has_no_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("", control=True) == []


@pytest.mark.parametrize(
    ("text", "read"), [("a\ud800b", "a\ufffdb"), ("\udc00", "\ufffd"), ("\ud83d\ude00\ud83d", "\U0001f600\ufffd")]
)
def test_lone_surrogates_are_replaced(tokenizer: Tokenizer, text: str, read: str) -> None:
    assert text_of(tokenizer, tokenizer.encode(text, control=False)) == read.encode()


def test_megabyte_comes_back(tokenizer: Tokenizer) -> None:
    text = "hello the world, 12345 \U0001f600 語\n" * 32_000
    assert len(text.encode()) > 1_000_000
    assert text_of(tokenizer, tokenizer.encode(text, control=True)) == text.encode()


def test_control_tokens_are_parsed_only_when_asked(tokenizer: Tokenizer) -> None:
    for token, spelling in tokenizer.control.items():
        text = f"a{spelling}b"
        assert token in tokenizer.encode(text, control=True)
        plain = tokenizer.encode(text, control=False)
        assert not tokenizer.control.keys() & set(plain)
        assert text_of(tokenizer, plain) == text.encode()


def test_control_token_that_the_vocabulary_calls_user_defined(load_tiny: LoadTiny) -> None:
    tokenizer = load_tiny(Tiny(types={"<|im_start|>": gguf.TokenType.USER_DEFINED, "hello": gguf.TokenType.CONTROL}))
    text = "the hello<|im_start|>hello"
    plain = tokenizer.tokenizer.encode(text, control=False)
    assert not tokenizer.tokenizer.control.keys() & set(plain)
    assert text_of(tokenizer.tokenizer, plain) == text.encode()


def test_end_token_that_the_vocabulary_calls_ordinary(load_tiny: LoadTiny) -> None:
    types = {"<|im_end|>": gguf.TokenType.USER_DEFINED}
    tokenizer = load_tiny(Tiny(types=types)).tokenizer
    assert tokenizer.control[2] == "<|im_end|>"
    assert 2 not in tokenizer.encode("a<|im_end|>b", control=False)
    assert tokenizer.encode("<|im_end|>", control=True) == [2]


def test_never_an_automatic_beginning(load_tiny: LoadTiny) -> None:
    tokenizer = load_tiny(Tiny(add_bos=True)).tokenizer
    assert tokenizer.bos == 0
    assert 0 not in tokenizer.encode("a", control=True)
    assert load_tiny(Tiny(add_bos=False)).tokenizer.bos is None


def test_pieces_of_all_tokens(tokenizer: Tokenizer) -> None:
    pieces = [tokenizer.piece(token) for token in range(tokenizer.size)]
    assert len(set(pieces)) > tokenizer.size * 0.99
    for token, spelling in tokenizer.control.items():
        assert pieces[token] == spelling.encode()


@pytest.mark.parametrize("token", [-1, 10**9])
def test_no_piece_for_no_token(tokenizer: Tokenizer, token: int) -> None:
    with pytest.raises(ValueError, match="is not in the vocabulary"):
        tokenizer.piece(token)


def test_long_piece_is_whole(load_tiny: LoadTiny) -> None:
    long = "<|" + "x" * 300 + "|>"
    tokenizer = load_tiny(Tiny(extra=(long,))).tokenizer
    assert tokenizer.encode(long, control=True) == [tokenizer.size - 1]
    assert tokenizer.piece(tokenizer.size - 1) == long.encode()


LONG_RUNS = """
import sys
from pathlib import Path
from antiphon.engine.llama import load
tokenizer = load(Path(sys.argv[1]), threads=1).tokenizer
for text in ("a" * 50_000, "\\u3000 " * 25_000, "!" * 50_000 + "\\n" * 50_000, "\\u8a9e" * 50_000 + "<|im_end|>"):
    assert b"".join(map(tokenizer.piece, tokenizer.encode(text, control=True))) == text.encode()
"""


def test_long_runs_do_not_kill_the_process(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "m.gguf", Tiny(pre="deepseek-llm"))
    assert subprocess.run([sys.executable, "-c", LONG_RUNS, str(path)], timeout=60).returncode == 0


def test_long_runs_keep_control_tokens_whole(tokenizer: Tokenizer) -> None:
    token, spelling = next(iter(tokenizer.control.items()))
    for before in range(RUN_LIMIT - len(spelling) - 1, RUN_LIMIT + 2):
        tokens = tokenizer.encode("a" * before + spelling + "b" * RUN_LIMIT, control=True)
        assert tokens.count(token) == 1, before


@given(st.lists(st.tuples(st.sampled_from(["a", " ", "\n", "\u3000", "语", "\x1c"]), st.integers(1, 3 * RUN_LIMIT))))
def test_no_long_run_is_left(pieces: list[tuple[str, int]]) -> None:
    text = "".join(letter * count for letter, count in pieces)
    cuts = [0, *long_run_cuts(text), len(text)]
    assert cuts == sorted(cuts)
    for start, end in zip(cuts, cuts[1:], strict=False):
        assert not long_run_cuts(text[start:end])


def test_ordinary_text_is_not_cut() -> None:
    assert long_run_cuts("a few words, and more\n\n" * 10_000) == []
    assert long_run_cuts("a" * RUN_LIMIT) == []
    assert long_run_cuts("a" * (RUN_LIMIT + 1)) == [RUN_LIMIT]


def test_cuts_move_out_of_spans() -> None:
    assert outside([5, 10, 20], [(3, 8), (10, 12), (18, 21)]) == [3, 10, 18]
    assert outside([5], []) == [5]


def test_tokenizing_while_the_model_computes(tiny: LlamaBackend) -> None:
    text = "hello the world <|im_end|> " * 50
    expected = tiny.tokenizer.encode(text, control=True)
    alone = ids(generate(tiny, [5, 6, 7], 100))
    wrong: list[object] = []

    def tokenize() -> None:
        wrong.extend(t for _ in range(50) if (t := tiny.tokenizer.encode(text, control=True)) != expected)

    threads = [threading.Thread(target=tokenize) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert ids(generate(tiny, [5, 6, 7], 100)) == alone
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tokenizer_outlives_the_backend(tmp_path: Path) -> None:
    backend = load(write_tiny_model(tmp_path / "m.gguf"), threads=1)
    tokenizer = backend.tokenizer
    backend.close()
    del backend
    assert text_of(tokenizer, tokenizer.encode("hello", control=False)) == b"hello"


ODD = st.sampled_from(
    ["<|im_end|>", "\u2581", "\x06", "\x13", "\ud83d\ude00", "\ud83d", "hello", " ", "    ", "-", "é", "語", "\0"]
)


def test_no_text_has_fewer_tokens_than_the_fewest(tokenizer: Tokenizer) -> None:
    """Bytes that the vocabulary lacks, control tokens, a SentencePiece blank, halves of characters."""

    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.tuples(ODD | TEXT, st.integers(1, 40)), max_size=6))
    def check(pieces: list[tuple[str, int]]) -> None:
        text = "".join(piece * times for piece, times in pieces)
        for control in (False, True):
            assert tokenizer.fewest(text, sys.maxsize) <= len(tokenizer.encode(text, control=control))

    check()


@pytest.mark.parametrize("text", ["a hundred words ", "1234567890+-", "語", "hello"])
def test_the_fewest_tokens_are_a_fair_part(tokenizer: Tokenizer, text: str) -> None:
    fewest, tokens = tokenizer.fewest(text * 1_000, sys.maxsize), len(tokenizer.encode(text * 1_000, control=True))
    assert tokens / 50 < fewest <= tokens


def test_a_text_is_read_until_it_has_enough(tokenizer: Tokenizer) -> None:
    text = "hello " * 1_000_000
    assert 10 <= tokenizer.fewest(text, 10) < tokenizer.fewest(text, sys.maxsize) / 3


def test_a_bound_counts_only_what_is_never_dropped() -> None:
    bound = TokenBound([b"ab", b"    ", b"a", b"b", b" "], dropped=b"!")
    assert bound.fewest("ababab", sys.maxsize) == 3
    assert bound.fewest("!" * 1_000, sys.maxsize) == 0
    assert bound.fewest("\u2581" * 1_000, sys.maxsize) == 0
    assert bound.fewest("%%%", sys.maxsize) == 3


def test_a_vocabulary_that_changes_text_proves_nothing(load_tiny: LoadTiny) -> None:
    tokenizer = load_tiny(Tiny(tokenizer="whitespace", pre="default")).tokenizer
    text = "hello world " * 100_000
    assert tokenizer.encode(" " * 1_000, control=True) == []
    assert tokenizer.fewest(text, 10) == 0
    assert list(tokenizer.parts(text)) == [text]


def in_parts(tokenizer: Tokenizer, text: str) -> list[int]:
    return [token for part in tokenizer.parts(text) for token in tokenizer.encode(part, control=True)]


def test_the_tokens_of_the_parts_are_those_of_the_text(tokenizer: Tokenizer) -> None:
    text = (
        "The old mill's hello, hello world:\n\n  the 12345 \u2581 語 <|im_end|>the<|im_end|> a\t b  c é ü x\n" * 2_200
    )
    parts = list(tokenizer.parts(text))
    assert "".join(parts) == text
    assert len(parts) > 2
    assert max(map(len, parts)) < PART + 100
    assert in_parts(tokenizer, text) == tokenizer.encode(text, control=True)


def test_a_text_without_words_is_one_part(tokenizer: Tokenizer) -> None:
    text = "x" * 3 * PART
    assert list(tokenizer.parts(text)) == [text]
    assert list(tokenizer.parts("")) == [""]


# Of llama.cpp, one for each pattern.
PRE_TOKENIZERS = """
default llama-bpe jais-2 dbrx smaug-bpe deepseek-llm deepseek-v3 youtu hunyuan-dense joyai-llm deepseek-coder falcon
starcoder refact command-r smollm codeshell exaone minerva-7b gpt-2 mpt olmo jais trillion granite-docling stablelm2
qwen2 hunyuan megrez qwen35 poro-chat bloom gpt3-finnish viking jina-v2-code tekken chameleon gpt-4o minimax-m2 tiny_aya
kimi-k2 superbpe bailingmoe bailingmoe2 llada-moe seed-coder grok-2 afmoe exaone-moe solar-open
""".split()


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_every_pattern_ends_between_words(load_tiny: LoadTiny, pre: str) -> None:
    """Where a text is parted. Cut anywhere else, most texts would have other tokens."""
    tokenizer = load_tiny(Tiny(pre=pre)).tokenizer
    chance = random.Random(pre)
    words = [
        "hello",
        "the",
        "in",
        "world",
        "er",
        "I'll",
        "A",
        "HELLO",
        "12",
        "1",
        "…",
        "é",
        "語",
        "?!",
        "\n",
        " ",
        "\t",
        "a",
    ]
    text = " ".join(chance.choice(words) + chance.choice(["", "", "an", "ing"]) for _ in range(1_500))
    starts = [0, *(found.start() for found in BETWEEN_WORDS.finditer(text)), len(text)]
    assert len(starts) > 200
    parts = [text[start:end] for start, end in pairwise(starts)]
    whole = tokenizer.encode(text, control=True)
    assert [token for part in parts for token in tokenizer.encode(part, control=True)] == whole
