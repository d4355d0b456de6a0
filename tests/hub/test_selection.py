"""Which of a repository's GGUF files is taken."""

from __future__ import annotations

import pytest

from antiphon.hub.base import HubError
from antiphon.hub.selection import choose, group, matches

QUANTS = ["README.md", "M-Q2_K.gguf", "M-Q4_K_M.gguf", "M-Q4_K_S.gguf", "M-IQ4_XS.gguf", "M-Q8_0.gguf"]
SPLIT = [f"Q8_0/M-Q8_0-0000{n}-of-00003.gguf" for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("files", "selector", "chosen"),
    [
        (QUANTS, None, ["M-Q4_K_M.gguf"]),
        (QUANTS, "q8_0", ["M-Q8_0.gguf"]),
        (QUANTS, "Q4_K_M", ["M-Q4_K_M.gguf"]),
        (QUANTS, "IQ4_XS", ["M-IQ4_XS.gguf"]),
        (QUANTS, "M-Q2_K.gguf", ["M-Q2_K.gguf"]),
        (["M-Q2_K.gguf", "M.Q8_0.gguf"], None, ["M.Q8_0.gguf"]),
        (["odd.gguf"], None, ["odd.gguf"]),
        (["odd.gguf", "mmproj-odd-f16.gguf"], None, ["odd.gguf"]),
        (["odd.gguf", "mmproj-odd-f16.gguf"], "mmproj-odd-f16.gguf", ["mmproj-odd-f16.gguf"]),
        (["M-Q4_K_M.gguf", "M-Q2_K.gguf", "mmproj-Q4_K_M.gguf"], None, ["M-Q4_K_M.gguf"]),
        ([*SPLIT, "M-Q2_K.gguf"], None, SPLIT),
        ([*SPLIT, "M-Q2_K.gguf"], "Q8_0", SPLIT),
        (SPLIT, SPLIT[1], SPLIT),
    ],
)
def test_chosen(files: list[str], selector: str | None, chosen: list[str]) -> None:
    assert choose(files, selector, "hf:o/r") == chosen


@pytest.mark.parametrize(
    ("files", "selector", "message"),
    [
        ([], None, "hf:o/r has no GGUF file"),
        (["model.safetensors"], "Q4_0", "hf:o/r has no GGUF file"),
        (QUANTS, "Q4_K", "no GGUF file for Q4_K"),
        (QUANTS, "Q4_XS", "no GGUF file for Q4_XS"),
        (QUANTS, "other.gguf", "no file other.gguf"),
        (["a.gguf", "b.gguf"], None, "several GGUF files; name one after a colon: a.gguf, b.gguf"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", "several GGUF files for Q8_0"),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], None, "several GGUF files"),
        (["mmproj-a.gguf"], None, "only companions"),
        (SPLIT[:2], None, "only 2 of the 3 parts"),
    ],
)
def test_refused(files: list[str], selector: str | None, message: str) -> None:
    with pytest.raises(HubError, match=message):
        choose(files, selector, "hf:o/r")


def test_a_long_list_is_cut() -> None:
    with pytest.raises(HubError, match="and 92 more"):
        choose([f"{n}.gguf" for n in range(100)], None, "hf:o/r")


def test_matches_and_groups() -> None:
    assert matches("a.gguf", None)
    assert matches("M-Q8_0.gguf", "q8_0")
    assert not matches("M-Q8_0.gguf", "Q8")
    assert all(matches(part, SPLIT[0]) for part in SPLIT)
    assert not matches("a.gguf", "b.gguf")
    assert group(["x.gguf", *reversed(SPLIT)]) == {SPLIT[0]: SPLIT, "x.gguf": ["x.gguf"]}
