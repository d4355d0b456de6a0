"""Which tokens may be chosen, and the choice among them: exact, in a few passes of numpy over the vocabulary.

Rules
* Scores are logits after bias and penalties: float32, never NaN, -inf for a token that must not come. The largest is
  finite, and every candidate keeps its distance from it.
* Probabilities, sums of them and places in the sums are never normalized: weights are relative to the largest, which
  is 1, so nothing overflows. Weights are float32, what is added up of them is float64.
* Among equal scores the lower token goes first, so that the same scores always give the same tokens.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.base import Sampling

Floats = NDArray[np.float32]
Sums = NDArray[np.float64]
Indices = NDArray[np.intp]

# Weights whose sums are found first, before a place in one of the blocks: one cumulative sum of everything costs more
# than ten times as much. Measured from 64 to 1,024: little is gained beyond 256.
BLOCK = 256

# The largest values are looked for among those that reach the `count`-th best of so many columns' maxima: that many
# times `count`, and at least the second. More leave fewer values to look at, fewer are quicker to find.
COLUMNS_EACH = 8
COLUMNS = 1024

# A lower temperature chooses the same token, and its inverse is no float32.
COLDEST = 1e-30


class Candidates:
    """The tokens that are left, and their scores; `tokens` None: all, by their place."""

    def __init__(self, scores: Floats, tokens: Indices | None = None) -> None:
        self.scores = scores
        self._tokens = tokens

    def keep(self, places: Indices) -> None:
        self._tokens = places if self._tokens is None else self._tokens[places]
        self.scores = self.scores[places]

    def token(self, place: int) -> int:
        return place if self._tokens is None else int(self._tokens[place])


def narrow(left: Candidates, peak: float, sampling: Sampling) -> None:
    """Keeps what top-k, top-p and min-p leave, each of what the one before has left. All are judged at temperature 1,
    and none takes the best token. The order is llama.cpp's."""
    if 0 < sampling.top_k < len(left.scores):
        left.keep(largest(left.scores, sampling.top_k))
    if sampling.top_p < 1:
        left.keep(nucleus(left.scores, weights(left.scores, peak), sampling.top_p))
    if sampling.min_p > 0:
        left.keep(np.flatnonzero(left.scores >= peak + np.log(min(sampling.min_p, 1.0))))


def weights(scores: Floats, peak: float, temperature: float = 1.0) -> Floats:
    """Probabilities, but for their sum: that of a score of `peak` is 1."""
    with np.errstate(over="ignore"):  # to -inf, whose weight is 0
        found: Floats = scores - np.float32(peak)
        if temperature != 1:
            found *= np.float32(1 / max(temperature, COLDEST))
    np.exp(found, out=found)
    return found


def draw(weights: Floats, uniform: float) -> int:
    """The place at which the cumulative sum passes this share of the whole, 0 <= `uniform` < 1: never one whose weight
    is 0."""
    sums = _block_sums(weights)
    return _place(weights, sums, uniform * float(sums[-1]), "right")


def largest(values: Floats, count: int) -> Indices:
    """The places of the `count` largest values, in no order; 0 < `count` <= their number."""
    near = np.flatnonzero(values >= _bound(values, count))
    return near[_first(values[near], count)]


def nucleus(scores: Floats, weights: Floats, share: float) -> Indices:
    """The places of the fewest weights, the largest, that have this share of the sum; at least one. In no order.

    Scores that differ by little weigh the same: which of them are in is told by the scores. Weights below a bound have
    together less than 1 - `share` if even `len(weights)` of the bound's size have no more. So only the others must be
    sorted: of 49,152 some hundreds to thousands in plain text, 10,000 in noise.
    """
    total = float(weights.sum())
    near = np.flatnonzero(weights >= (1 - share) * total / len(weights))
    falling = np.sort(weights[near])[::-1]
    count = _place(falling, _block_sums(falling), share * total, "left") + 1
    return near[_first(scores[near], count)]


def _first(values: Floats, count: int) -> Indices:
    """The places of the `count` largest values, of equal ones the first."""
    last = np.partition(values, -count)[-count]
    above = np.flatnonzero(values > last)
    equal = np.flatnonzero(values == last)[: count - len(above)]
    return np.concatenate((above, equal))


def _bound(values: Floats, count: int) -> float:
    """A value that at least `count` values reach: so many of the columns' maxima do."""
    columns = max(COLUMNS_EACH * count, COLUMNS)
    rows = len(values) // columns
    if rows < 2:
        return -np.inf
    maxima = values[: rows * columns].reshape(rows, columns).max(axis=0)
    return float(np.partition(maxima, -count)[-count])


def _block_sums(weights: Floats) -> Sums:
    """The cumulative sums at the end of each block."""
    return np.add.reduceat(weights, np.arange(0, len(weights), BLOCK)).cumsum(dtype=np.float64)


def _place(weights: Floats, sums: Sums, target: float, side: Literal["left", "right"]) -> int:
    """Where the cumulative sum first reaches ("left") or passes ("right") the target; else the last weight above 0."""
    block = min(int(sums.searchsorted(target, side)), len(sums) - 1)
    inner = weights[block * BLOCK : (block + 1) * BLOCK].cumsum(dtype=np.float64)
    before = float(sums[block - 1]) if block else 0.0
    # Rounded otherwise than the sum of the block, `inner` may end below the target.
    last = int(inner.searchsorted(inner[-1]))
    return block * BLOCK + min(int(inner.searchsorted(target - before, side)), last)
