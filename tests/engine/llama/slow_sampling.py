"""Sampling as it is defined: plain Python, float64, everything sorted. What the fast one is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence

from antiphon.engine.base import Sampling

ROUNDED = 1e-6
"""How far a share of the probability may be off in float32."""


def changed(logits: Sequence[float], sampling: Sampling, prompt: Sequence[int], answer: Sequence[int]) -> list[float]:
    """The scores: logits after bias and penalties."""
    scores = [logit + sampling.logit_bias.get(token, 0.0) for token, logit in enumerate(logits)]
    for token in {*prompt, *answer}:
        score, penalty = scores[token], sampling.repetition_penalty
        scores[token] = score / penalty if score > 0 else score * penalty
    for token in set(answer):
        scores[token] -= answer.count(token) * sampling.frequency_penalty + sampling.presence_penalty
    return scores


def probabilities(scores: Sequence[float], temperature: float = 1.0) -> list[float]:
    peak = max(scores)
    weights = [math.exp((score - peak) / temperature) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def kept(scores: Sequence[float], sampling: Sampling, rounding: float = 0.0) -> list[int]:
    """What top-k, top-p and min-p leave, the best first. `rounding` is added to what top-p wants."""
    ranked = sorted(range(len(scores)), key=lambda token: (-scores[token], token))
    if sampling.top_k > 0:
        ranked = ranked[: sampling.top_k]
    if sampling.top_p < 1:
        found, share = 0.0, probabilities([scores[token] for token in ranked])
        for count, probability in enumerate(share, 1):
            found += probability
            if found >= sampling.top_p + rounding:
                ranked = ranked[:count]
                break
    if sampling.min_p > 0:
        floor = scores[ranked[0]] + math.log(min(sampling.min_p, 1.0))
        ranked = [token for token in ranked if scores[token] >= floor]
    return ranked
