from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.text.detokenizer import ControlToken, Detokenizer, Vocabulary
from tests.three_cuts import three_cuts

END = 256
START = 257
EMPTY = 258
EURO = "€".encode()


class ByteTokenizer:
    """A token a byte, two control tokens, and one token that stands for nothing. Counts the pieces asked of it."""

    size = 259
    bos: int | None = None
    end = ()
    control: Mapping[int, str] = {END: "<|im_end|>", START: "<|im_start|>"}

    def __init__(self) -> None:
        self.asked: list[int] = []

    def encode(self, text: str, *, control: bool) -> list[int]:
        return list(text.encode())

    def fewest(self, text: str, enough: int) -> int:
        return 0

    def parts(self, text: str) -> Iterator[str]:
        yield text

    def piece(self, token: int) -> bytes:
        self.asked.append(token)
        return bytes([token]) if token < END else b""


def detokenizer() -> Detokenizer:
    return Detokenizer(Vocabulary(ByteTokenizer()))


VOCABULARY = Vocabulary(ByteTokenizer())


def run(pieces: Sequence[Sequence[int]]) -> list[str | ControlToken]:
    """Every step through one detokenizer of a model that has answered before, neighbouring texts merged."""
    subject = Detokenizer(VOCABULARY)
    found: list[str | ControlToken] = []
    for piece in pieces:
        for part in subject.feed(piece):
            assert part, "no piece is empty"
            if found and isinstance(part, str) and isinstance(found[-1], str):
                found[-1] += part
            else:
                found.append(part)
    subject.finish()
    return found


def test_ascii_goes_out_at_once_and_alone() -> None:
    subject = detokenizer()
    assert [subject.feed([byte]) for byte in b"hey"] == [["h"], ["e"], ["y"]]
    assert [subject.feed([byte]) for byte in b"hey"] == [["h"], ["e"], ["y"]]


def test_texts_of_one_step_are_one_piece() -> None:
    assert detokenizer().feed([*b"ab", END, *b"cd", EMPTY, *b"e"]) == ["ab", ControlToken("<|im_end|>"), "cde"]


def test_torn_character_is_held_until_it_is_whole() -> None:
    subject = detokenizer()
    assert [subject.feed([byte]) for byte in EURO] == [[], [], ["€"]]
    assert subject.feed([EURO[0], EURO[1]]) == []
    assert subject.feed([EURO[2], *b"x"]) == ["€x"]
    assert subject.feed(b"y") == ["y"]
    assert subject.feed([EURO[0]]) == []
    assert subject.feed(b"y") == ["\ufffdy"]


@pytest.mark.parametrize("tail", [EURO[:1], EURO[:2], "😀".encode()[:3]])
def test_character_torn_by_the_end_is_dropped(tail: bytes) -> None:
    subject = detokenizer()
    assert subject.feed(b"a" + tail) == ["a"]
    subject.finish()
    assert subject.feed(b"b") == ["b"]
    assert subject.feed(EURO) == ["€"]


def test_torn_character_before_a_control_token_is_replaced() -> None:
    assert detokenizer().feed([EURO[0], END, EURO[1]]) == ["\ufffd", ControlToken("<|im_end|>"), "\ufffd"]
    subject = detokenizer()
    assert subject.feed([EURO[0]]) == []
    assert subject.feed([START]) == ["\ufffd", ControlToken("<|im_start|>")]
    assert subject.feed(b"b") == ["b"]


def test_token_without_bytes_gives_nothing_and_tears_nothing() -> None:
    subject = detokenizer()
    assert subject.feed([EMPTY]) == []
    assert subject.feed([EMPTY]) == []
    assert subject.feed([EURO[0], EMPTY, EURO[1], EURO[2]]) == ["€"]
    assert subject.feed([]) == []


def test_spelled_control_token_is_text() -> None:
    assert detokenizer().feed(b"<|im_end|>") == ["<|im_end|>"]


def test_pieces_are_looked_up_once_for_all_detokenizers_of_a_model() -> None:
    tokenizer = ByteTokenizer()
    vocabulary = Vocabulary(tokenizer)
    for _ in range(2):
        assert Detokenizer(vocabulary).feed([*b"aba", *EURO, END]) == ["aba€", ControlToken("<|im_end|>")]
    assert sorted(tokenizer.asked) == sorted({*b"ab", *EURO})


@pytest.mark.parametrize(
    "stream",
    [
        list("Grüße, 世界 😀!".encode()),
        [*b"a", 0xFF, *b"b", 0xC3, *b"c", 0x80, *EURO[:2], *EURO],
        [*EURO[:2], END, *EURO, START, START, *b"x", EURO[0]],
        [0xED, 0xA0, 0x80, *b"z"],
        [],
    ],
)
def test_three_cuts(stream: list[int]) -> None:
    three_cuts(run, stream)


@given(st.binary(max_size=40), st.data())
def test_bytes_are_what_the_codec_makes_of_them(stream: bytes, data: st.DataObject) -> None:
    split = data.draw(st.integers(0, len(stream)))
    codec = codecs.getincrementaldecoder("utf-8")("replace")
    assert "".join(map(str, run([stream[:split], stream[split:]]))) == codec.decode(stream)  # a torn end is dropped
