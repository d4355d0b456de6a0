"""Each kind of model answers the same alone and in company, whatever its cache can do."""

from __future__ import annotations

import numpy as np
import pytest

from antiphon.engine.backend import Batch, CellsExhausted, Entry, Parcel, Restore, Save, Share, Trim
from antiphon.engine.base import EngineFailure
from antiphon.engine.llama import LlamaBackend
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import (
    JUDGED,
    assert_same_but_for_ties,
    compute,
    generate,
    generate_together,
    make_node,
    move,
    prefill,
)
from tests.tiny_model import FAMILIES, Tiny

CAN_TRIM = {"llama": True, "qwen3": True, "gemma3": False, "mamba": False, "jamba": False}
UNCUT = [name for name, trims in CAN_TRIM.items() if not trims]
LONG = [5 + (i * i) % 200 for i in range(300)]  # many times longer than the sliding window
PROMPTS = [LONG, LONG[:40], [9, 8, 7] * 20, [40]]


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_can_be_trimmed(load_tiny: LoadTiny, family: str) -> None:
    backend = load_tiny(Tiny(family=family), lanes=4)
    assert backend.can_trim is CAN_TRIM[family]
    assert (backend.lanes, backend.slots) == (4, 128 if CAN_TRIM[family] else 4)


def test_same_text_alone_and_in_company(load_tiny: LoadTiny, family: str) -> None:
    backend = load_tiny(Tiny(family=family), lanes=4)
    alone = [generate(backend, prompt, 24, JUDGED) for prompt in PROMPTS]
    assert len({run[0].token for run in alone}) > 1
    for _ in range(2):  # the second time over what the first has left
        for run, reference in zip(generate_together(backend, PROMPTS, 24, JUDGED), alone, strict=True):
            assert_same_but_for_ties(run, reference)


@pytest.mark.parametrize("name", [name for name, trims in CAN_TRIM.items() if trims])
def test_prefixes_of_a_family(load_tiny: LoadTiny, name: str) -> None:
    backend = load_tiny(Tiny(family=name))
    reference = generate(backend, LONG, 12, JUDGED)
    make_node(backend, 20, LONG[:100])
    make_node(backend, 21, LONG[:250], start=100)
    parcel = Parcel()
    move(backend, Save(21, parcel), Trim(21, 0), Restore(22, parcel, 100, 250))
    move(backend, Share(20, 1, 0, 100), Share(22, 1, 100, 250))
    assert_same_but_for_ties(generate(backend, LONG, 12, JUDGED, slot=1, start=250), reference)


@pytest.mark.parametrize("name", UNCUT)
def test_slots_that_can_only_be_emptied(load_tiny: LoadTiny, name: str) -> None:
    backend = load_tiny(Tiny(family=name))
    reference = generate(backend, LONG, 4)
    prefill(backend, 0, LONG)
    for move_ in (Trim(0, 2), Share(0, 1, 0, 2), Save(0, Parcel()), Restore(1, Parcel(b"x"), 0, 2)):
        with pytest.raises(EngineFailure, match="can only be emptied"):
            backend.execute(Batch(moves=(Trim(0, 0), move_)))
    compute(backend, Entry(0, len(LONG), (5,)))
    move(backend, Trim(0, 0))
    assert generate(backend, LONG, 4) == reference


@pytest.mark.parametrize("name", ["gemma3", "jamba"])
def test_a_full_cache_changes_nothing(load_tiny: LoadTiny, name: str) -> None:
    backend = load_tiny(Tiny(family=name), context_length=256, cells=256)
    reference = generate(backend, LONG[:120], 8, JUDGED)
    prefill(backend, 0, LONG[:100])
    prefill(backend, 1, LONG[:150])
    with pytest.raises(CellsExhausted):
        compute(backend, Entry(0, 100, LONG[100:120]), Entry(1, 150, LONG[150:160]))
    move(backend, Trim(1, 0))
    assert_same_but_for_ties(generate(backend, LONG[:120], 8, JUDGED, start=100), reference)


def test_a_window_slides(load_tiny: LoadTiny) -> None:
    """What is out of every window is not seen: the tiny model of two layers reaches 30 tokens back, but for its layer
    without a window."""
    narrow, wide = load_tiny(Tiny(family="gemma3", window=16)), load_tiny(Tiny(family="gemma3", window=1000))
    short, long = LONG[:10], LONG[:60]
    near = [generate(backend, short, 1, JUDGED)[0].logprob for backend in (narrow, wide)]
    far = [generate(backend, long, 1, JUDGED)[0].logprob for backend in (narrow, wide)]
    assert near[0] is not None
    assert near[1] is not None
    assert np.isclose(near[0].logprob, near[1].logprob, atol=1e-3)
    assert far[0] != far[1]


def test_a_slot_for_each_lane_of_a_recurrent_model(load_tiny: LoadTiny) -> None:
    backend: LlamaBackend = load_tiny(Tiny(family="mamba"), lanes=100, batch_tokens=100)
    assert (backend.lanes, backend.slots) == (100, 100)
    entries = [Entry(lane, 0, (5,), backend.sampler(JUDGED, [5])) for lane in range(100)]
    assert len({result.token for result in compute(backend, *entries)}) == 1
