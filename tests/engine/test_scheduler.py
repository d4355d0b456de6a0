"""Single decisions in chosen states: what is computed, who is admitted and where, what an end from outside leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.backend import Trim
from antiphon.engine.base import Finish, Generation, Sampling, Step
from antiphon.engine.scheduler import (
    MIXED_PREFILL,
    Admit,
    Compute,
    Idle,
    State,
    common_prefix,
)
from tests.engine.arithmetic_backend import alone
from tests.engine.drive import decided, drive, text

# What is computed


def test_without_requests_there_is_nothing_to_do() -> None:
    assert decided(drive().state) == Idle()


@pytest.mark.parametrize("can_trim", [True, False])
def test_a_prompt_of_one_token_decodes_at_once(can_trim: bool) -> None:
    d = drive(can_trim=can_trim)
    sequence = d.add([7], max_tokens=1)
    assert d.step() == [Admit(0, 0, 0), Compute(((sequence, 1),))]
    assert d.ended == {sequence: Finish.LENGTH}
    assert d.outputs[sequence] == alone([7], 1)


@pytest.mark.parametrize("max_tokens", [None, 1, 5])
@pytest.mark.parametrize("can_trim", [True, False])
def test_a_prompt_of_the_context_minus_one_has_room_for_one_token(max_tokens: int | None, can_trim: bool) -> None:
    d = drive(cells=64, context_length=64, batch_tokens=16, can_trim=can_trim)
    sequence = d.add(text(63), max_tokens)
    d.run()
    assert d.ended == {sequence: Finish.LENGTH}
    assert d.outputs[sequence] == alone(text(63), 1)


def test_an_end_of_generation_token_is_not_part_of_the_output() -> None:
    d = drive(ends=lambda tokens: len(tokens) == 12)
    sequence = d.add(text(10))
    d.run()
    assert d.ended == {sequence: Finish.STOP}
    assert d.outputs[sequence] == alone(text(10), 2)


def test_log_probabilities_are_passed_on() -> None:
    d = drive()
    sequence = d.state.add(Generation(id="r", prompt=[1], sampling=Sampling(top_logprobs=2)))
    d.state.apply(Admit(0, 0, 0))
    sampler = d.backend.sampler(sequence.generation.sampling, [1])
    sequence.sampler = sampler
    compute = Compute(((sequence, 1),))
    [sampled] = d.backend.execute(d.state.batch(compute))
    assert sampled.logprob is not None
    assert d.state.complete(compute, [sampled]) == [(sequence, Step((sampled.token,), None, (sampled.logprob,)))]


def test_alone_a_prompt_fills_the_batch() -> None:
    d = drive(batch_tokens=512)
    sequence = d.add(text(600))
    assert d.step()[-1] == Compute(((sequence, 512),))
    assert d.step()[-1] == Compute(((sequence, 88),))
    assert d.step()[-1] == Compute(((sequence, 1),))


def test_decoding_goes_first_and_a_prompt_gets_the_mixed_bound() -> None:
    d = drive(batch_tokens=512)
    short = d.add(text(3))
    d.step()
    long = d.add(text(300, start=100))
    assert d.step()[-1] == Compute(((short, 1), (long, MIXED_PREFILL)))
    assert d.step()[-1] == Compute(((short, 1), (long, MIXED_PREFILL)))
    assert d.step()[-1] == Compute(((short, 1), (long, 300 - 2 * MIXED_PREFILL)))
    assert d.step()[-1] == Compute(((short, 1), (long, 1)))


def test_decoding_goes_first_even_if_the_prompt_is_older() -> None:
    d = drive(batch_tokens=40)
    long = d.add(text(39))
    short = d.add(text(1, start=100))
    assert d.step()[-1] == Compute(((short, 1), (long, 39)))


def test_a_small_batch_is_shared_in_the_order_of_arrival() -> None:
    d = drive(batch_tokens=64)
    first, second, third = (d.add(text(40, start), max_tokens=3) for start in (0, 50, 100))
    assert d.step()[-1] == Compute(((first, 40), (second, 24)))
    assert d.step()[-1] == Compute(((first, 1), (second, 16), (third, 40)))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))


def test_a_batch_full_of_decoding_sequences_still_takes_prompt_tokens() -> None:
    d = drive(slots=3, batch_tokens=3)
    first, second, third = (d.add(text(3, start)) for start in (0, 50, 100))
    assert d.step()[-1] == Compute(((first, 3),))
    assert d.step()[-1] == Compute(((first, 1), (second, 2)))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))


# Who is admitted, and where


def test_first_come_first_served_when_the_slots_are_full() -> None:
    d = drive(slots=2)
    first, second, third, fourth = (d.add(text(10, 20 * n), max_tokens=5 - n) for n in range(4))
    d.step()
    assert d.state.running == [first, second]
    assert list(d.state.waiting) == [third, fourth]
    d.run()
    assert list(d.ended) == [second, first, third, fourth]


def test_a_second_turn_takes_its_slot_over() -> None:
    d = drive()
    first = d.add(text(20), max_tokens=5)
    d.run()
    prompt = [*text(20), *d.outputs[first], *text(4, start=200)]
    second = d.add(prompt, max_tokens=2)
    assert d.step()[0] == Admit(0, 0, 24)  # The last sampled token was never computed.
    assert second.cached == 24
    d.run()
    assert d.outputs[second] == alone(prompt, 2)


def test_a_branch_gets_a_slot_of_its_own() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    d.add([*text(20), 255], max_tokens=1)
    assert d.step()[0] == Admit(1, 0, 20)
    d.add([*text(40), 7], max_tokens=1)
    assert d.step()[0] == Admit(0, 0, 40)  # The longer prefix is still whole.


def test_a_branch_takes_the_slot_over_if_there_is_no_other() -> None:
    d = drive(slots=1)
    d.add(text(40), max_tokens=1)
    d.run()
    sequence = d.add([*text(5), 255], max_tokens=3)
    assert d.step()[0] == Admit(0, 0, 5)
    d.run()
    assert d.outputs[sequence] == alone([*text(5), 255], 3)


def test_more_than_half_is_a_continuation() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    d.add([*text(21), 255], max_tokens=1)
    assert d.step()[0] == Admit(0, 0, 21)


def test_a_running_sequence_lends_its_prefix() -> None:
    d = drive()
    first = d.add(text(40))
    d.step()
    second = d.add([*text(30), 255])
    assert d.step() == [Admit(1, 0, 30), Compute(((first, 1), (second, 1)))]
    assert d.backend.used == 40 + 1 + 1


def test_the_same_prompt_again_computes_one_token() -> None:
    d = drive()
    d.add(text(40), max_tokens=3)
    d.run()
    again = d.add(text(40), max_tokens=3)
    assert d.step() == [Admit(0, 0, 39), Compute(((again, 1),))]
    assert again.cached == 39


def test_without_trimming_nothing_is_shared_or_kept() -> None:
    d = drive(can_trim=False)
    for slot in (0, 1):  # Empty slots have no order that matters: the least recently used.
        d.add(text(40), max_tokens=3)
        assert d.step()[0] == Admit(slot, slot, 0)
        d.run()
    assert d.state.pool.free == d.backend.cells


def test_the_coldest_prefix_makes_way_when_the_slots_are_taken() -> None:
    d = drive(slots=2)
    for start in (0, 50):
        d.add(text(10, start), max_tokens=1)
        d.run()
    d.add(text(12), max_tokens=1)  # Slot 0 is warm again.
    d.run()
    d.add(text(10, start=150), max_tokens=1)
    assert d.step()[0] == Admit(1, 1, 0)


# Ends from outside


def test_removing_is_idempotent_in_every_phase() -> None:
    d = drive(slots=1)
    running, waiting = d.add(text(10)), d.add(text(10, start=100))
    d.step()
    for sequence in (waiting, running, running, waiting):
        d.state.remove(sequence)
        assert sequence not in d.state.running
        assert sequence not in d.state.waiting
    assert d.state.slots[0].tokens == text(10)
    assert decided(d.state) == Idle()


def test_a_cancelled_prompt_leaves_what_it_computed_as_a_prefix() -> None:
    d = drive(batch_tokens=16)
    first = d.add(text(40))
    d.step()
    d.cancel(first)
    again = d.add(text(40), max_tokens=2)
    assert d.step()[0] == Admit(0, 0, 16)
    d.run()
    assert d.outputs[again] == alone(text(40), 2)


@pytest.mark.parametrize("steps", [0, 1])
def test_dropping_empties_the_slot_even_where_the_count_says_it_is_empty(steps: int) -> None:
    """A batch that failed may have left half of itself in the cache."""
    d = drive()
    sequence = d.add(text(10))
    for _ in range(steps):
        d.step()
    if not steps:
        d.state.apply(Admit(0, 0, 0))
    d.state.drop(sequence)
    d.state.drop(sequence)
    assert d.state.slots[0].tokens == []
    assert d.state.pool.free == d.backend.cells
    assert Trim(0, 0) in d.state.batch(Compute(())).moves


def test_dropping_who_waits_touches_no_slot() -> None:
    d = drive(slots=1)
    d.add(text(10))
    d.step()
    waiting = d.add(text(20, start=100))
    d.state.drop(waiting)
    assert d.state.slots[0].tokens == text(10)
    assert not d.state.waiting


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold 4 decoding"):
        State(slots=4, cells=10, batch_tokens=3, context_length=10, can_trim=True)
    with pytest.raises(ValueError, match="does not fit"):
        State(slots=4, cells=10, batch_tokens=4, context_length=11, can_trim=True)


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)))
def test_the_common_prefix(stem: list[int], one: list[int], other: list[int]) -> None:
    a, b = stem + one, stem + other
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    assert common_prefix(a, b) == common_prefix(b, a) == length
