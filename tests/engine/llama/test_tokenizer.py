"""Text to tokens and back: every text comes back, and control tokens are never made of plain text."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.base import Tokenizer
from antiphon.engine.llama import LlamaBackend, load
from antiphon.engine.llama.runs import RUN_LIMIT, long_run_cuts, outside
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
