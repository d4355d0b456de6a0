"""Prefixes in slots of their own: shared, saved, restored; and what is refused."""

from __future__ import annotations

import re

import pytest

from antiphon.engine.backend import Batch, ContextLost, Entry, Move, Parcel, Restore, RestoreFailed, Save, Share, Trim
from antiphon.engine.base import EngineFailure
from antiphon.engine.llama import LlamaBackend
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import (
    JUDGED,
    assert_holds,
    assert_same_but_for_ties,
    compute,
    empty,
    generate,
    make_node,
    move,
    prefill,
)
from tests.tiny_model import Tiny

NODE, TAIL, OTHER = 8, 9, 10  # the first slots behind the lanes
TEXT = "The harbour master wrote down every ship, its master and its load, and in the evening he read it all again. "


@pytest.fixture(params=["tiny", "real"])
def backend(request: pytest.FixtureRequest) -> LlamaBackend:
    found: LlamaBackend = request.getfixturevalue(request.param)
    return found


def prompt_of(backend: LlamaBackend, length: int = 160) -> list[int]:
    return backend.tokenizer.encode(TEXT * 40, control=False)[:length]


def saved(backend: LlamaBackend, slot: int) -> Parcel:
    parcel = Parcel()
    move(backend, Save(slot, parcel))
    return parcel


def state(backend: LlamaBackend, slot: int) -> bytes:
    data = saved(backend, slot).data
    assert data is not None
    return bytes(data)


def test_a_path_of_nodes_is_shared_with_a_lane(backend: LlamaBackend) -> None:
    prompt = prompt_of(backend)
    reference = generate(backend, prompt, 12, JUDGED)
    make_node(backend, NODE, prompt[:60])
    make_node(backend, TAIL, prompt[:130], start=60)
    for lane in (3, 5):
        move(backend, Share(NODE, lane, 0, 60), Share(TAIL, lane, 60, 130))
        assert_same_but_for_ties(generate(backend, prompt, 12, JUDGED, slot=lane, start=130), reference)


def test_a_part_of_a_node_is_shared(backend: LlamaBackend) -> None:
    prompt = prompt_of(backend)
    reference = generate(backend, prompt, 6, JUDGED)
    make_node(backend, NODE, prompt[:150])
    move(backend, Share(NODE, TAIL, 80, 150), Trim(NODE, 80))  # a node is split
    move(backend, Share(NODE, 2, 0, 80), Share(TAIL, 2, 80, 120))
    assert_same_but_for_ties(generate(backend, prompt, 6, JUDGED, slot=2, start=120), reference)


def test_saved_and_restored_prefix_gives_the_same_text(backend: LlamaBackend) -> None:
    prompt = prompt_of(backend)
    reference = generate(backend, prompt, 12, JUDGED)
    make_node(backend, NODE, prompt[:60])
    make_node(backend, TAIL, prompt[:130], start=60)
    parcels = saved(backend, NODE), saved(backend, TAIL)
    empty(backend)
    prefill(backend, 1, prompt[::-1])  # other keys and values where they were
    move(backend, Restore(TAIL, parcels[1], 60, 130), Restore(NODE, parcels[0], 0, 60))
    move(backend, Share(NODE, 4, 0, 60), Share(TAIL, 4, 60, 130))
    assert_same_but_for_ties(generate(backend, prompt, 12, JUDGED, slot=4, start=130), reference)


def test_a_parcel_goes_into_any_slot_of_any_context(tiny: LlamaBackend, load_tiny: LoadTiny) -> None:
    make_node(tiny, NODE, [5, 6, 7] * 20)
    parcel = saved(tiny, NODE)
    other = load_tiny(lanes=2, cells=2048, batch_tokens=32)
    assert other.fingerprint == tiny.fingerprint
    assert parcel.data is not None
    for slot, data in ((1, bytes(parcel.data)), (90, memoryview(parcel.data))):
        move(other, Restore(slot, Parcel(data), 0, 60))
        assert state(other, slot) == parcel.data


def test_saving_changes_nothing(backend: LlamaBackend) -> None:
    prompt = prompt_of(backend)
    make_node(backend, NODE, prompt)
    prefill(backend, 2, prompt[:60])
    assert state(backend, NODE) == state(backend, NODE)
    assert state(backend, 2) == state(backend, 2)
    assert_holds(backend, 2, 60)


def test_cell_bytes_are_what_a_parcel_grows_by(backend: LlamaBackend) -> None:
    make_node(backend, NODE, prompt_of(backend))
    data = state(backend, NODE)
    assert 0 <= len(data) - 160 * backend.cell_bytes < 2_000
    move(backend, Share(NODE, TAIL, 100, 160))
    assert len(data) - len(state(backend, TAIL)) == 100 * backend.cell_bytes


def test_shared_cells_count_once_and_restored_ones_again(load_tiny: LoadTiny) -> None:
    backend = load_tiny(context_length=256, cells=256)
    make_node(backend, NODE, [5] * 100)
    parcel = saved(backend, NODE)
    move(backend, *(Share(NODE, slot, 0, 100) for slot in (0, 1, TAIL)))
    move(backend, Restore(OTHER, parcel, 0, 100))
    compute(backend, Entry(2, 0, [6] * 56))
    move(backend, Trim(2, 0), Trim(OTHER, 0))
    with pytest.raises(RestoreFailed):  # 156 cells are free
        move(backend, Restore(OTHER, parcel, 0, 100), Restore(11, parcel, 0, 100))


def test_a_parcel_that_does_not_fit_leaves_its_slot_empty(tiny: LlamaBackend, load_tiny: LoadTiny) -> None:
    make_node(tiny, NODE, [5, 6, 7] * 20, start=10)
    data = state(tiny, NODE)
    stranger = load_tiny(Tiny(layers=4))
    make_node(stranger, NODE, [5, 6, 7] * 20, start=10)
    damaged = {
        "cut": data[: len(data) // 2],
        "cut in its head": data[:30],
        "one byte": data[:1],
        "nothing": b"",
        "noise": bytes(range(256)) * (len(data) // 256),
        "longer": data + b"more",
        "another model": state(stranger, NODE),
    }
    for name, bad in damaged.items():
        with pytest.raises(RestoreFailed) as caught:
            move(tiny, Restore(OTHER, Parcel(bad), 10, 60))
        assert caught.value.slot == OTHER, name
    for start, end in ((0, 60), (9, 60), (10, 61), (0, 50), (60, 70)):
        with pytest.raises(RestoreFailed):
            move(tiny, Restore(OTHER, Parcel(data), start, end))
    move(tiny, Restore(OTHER, Parcel(data), 10, 60))
    assert state(tiny, OTHER) == data


def test_a_failed_restore_leaves_the_moves_before_it_done_and_no_others(tiny: LlamaBackend) -> None:
    prefill(tiny, 0, [5] * 20)
    moves = (Trim(0, 10), Restore(NODE, Parcel(b"no state"), 0, 20), Trim(0, 0))
    with pytest.raises(RestoreFailed):
        tiny.execute(Batch(moves=moves, entries=(Entry(0, 10, (5,)),)))
    assert_holds(tiny, 0, 10)


def test_positions_that_cannot_be_removed_lose_the_context(tiny: LlamaBackend) -> None:
    make_node(tiny, NODE, [5] * 20)
    damaged = bytearray(state(tiny, NODE))
    first = re.search(rb"\x01\0\0\0\x01\0\0\0", damaged[16:])  # position 1, of one sequence
    assert first is not None
    damaged[16 + first.start() + 3] = 0x80
    with pytest.raises(ContextLost, match="should be empty"):
        move(tiny, Restore(OTHER, Parcel(damaged), 0, 20))
    tiny.reset()
    prefill(tiny, 0, [5] * 1000)


@pytest.fixture
def filled(tiny: LlamaBackend) -> LlamaBackend:
    """Lane 0 holds 20 positions, `NODE` holds 10 to 29."""
    make_node(tiny, NODE, [6] * 30, start=10)
    prefill(tiny, 0, [5] * 20)
    return tiny


REFUSED: dict[str, Move] = {
    "trim of no slot": Trim(128, 0),
    "trim to below 0": Trim(0, -1),
    "share from no slot": Share(-1, 1, 0, 5),
    "share with no slot": Share(0, 128, 0, 5),
    "share with itself": Share(0, 0, 0, 5),
    "share of nothing": Share(0, 1, 5, 5),
    "share from below 0": Share(0, 1, -1, 5),
    "save of no slot": Save(128, Parcel()),
    "restore of nothing": Restore(OTHER, Parcel(b"x"), 5, 5),
    "restore into no slot": Restore(-1, Parcel(b"x"), 0, 5),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_move_that_cannot_be_is_refused_and_changes_nothing(filled: LlamaBackend, name: str) -> None:
    before = state(filled, 0), state(filled, NODE)
    with pytest.raises(EngineFailure) as caught:
        filled.execute(Batch(moves=(Trim(0, 0), Trim(NODE, 0), REFUSED[name])))
    assert not isinstance(caught.value, ContextLost)
    assert (state(filled, 0), state(filled, NODE)) == before
    assert_holds(filled, 0, 20)


LOST: dict[str, Move] = {
    "trim to more than there is": Trim(0, 21),
    "trim before a node": Trim(NODE, 10),
    "trim of an empty slot": Trim(1, 1),
    "share of more than there is": Share(0, 1, 0, 21),
    "share of an empty slot": Share(2, 1, 0, 5),
    "share from before a node": Share(NODE, OTHER, 5, 20),
    "share behind a gap": Share(NODE, 0, 21, 30),
    "share before a gap": Share(0, NODE, 0, 9),
    "save of an empty slot": Save(1, Parcel()),
    "restore over what is there": Restore(NODE, Parcel(b"x"), 0, 5),
    "restore behind what is there": Restore(NODE, Parcel(b"x"), 30, 35),
}


@pytest.mark.parametrize("name", LOST)
def test_a_move_that_the_slots_contradict_loses_the_context(filled: LlamaBackend, name: str) -> None:
    with pytest.raises(ContextLost):
        move(filled, LOST[name])
    with pytest.raises(ContextLost):
        filled.execute(Batch())
    filled.reset()
    assert_holds(filled, 0, 0)


def test_what_is_shared_takes_the_place_of_what_was_there(filled: LlamaBackend) -> None:
    """`NODE` was computed behind sixes, and lane 0 holds fives."""
    move(filled, Share(NODE, TAIL, 12, 18), Share(0, OTHER, 0, 12), Share(NODE, OTHER, 12, 18), Share(0, OTHER, 18, 20))
    before = state(filled, NODE)
    move(filled, Share(NODE, 0, 12, 18))
    assert state(filled, 0) == state(filled, OTHER)
    assert state(filled, NODE) == before
    assert_holds(filled, 0, 20)


def test_pieces_join_in_any_order(filled: LlamaBackend) -> None:
    move(filled, Share(NODE, 1, 20, 30), Share(0, 1, 0, 20))
    assert_holds(filled, 1, 30)
    move(filled, Share(NODE, 2, 10, 30))
    with pytest.raises(ContextLost, match="slot 2 holds positions 10 to 29 and cannot go on at position 30"):
        assert_holds(filled, 2, 30)


def test_a_part_of_a_parcel_is_restored(filled: LlamaBackend) -> None:
    parcel = saved(filled, NODE)
    for start, end in ((10, 30), (15, 30), (10, 12), (20, 21)):
        move(filled, Share(NODE, TAIL, start, end), Restore(OTHER, parcel, start, end))
        assert state(filled, OTHER) == state(filled, TAIL)
        move(filled, Trim(TAIL, 0), Trim(OTHER, 0))
    prefill(filled, 1, [5] * (filled.cells - 60))
    move(filled, Restore(OTHER, parcel, 20, 21))  # 20 cells were free
    with pytest.raises(RestoreFailed):
        move(filled, Restore(TAIL, parcel, 20, 21))
