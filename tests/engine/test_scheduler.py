"""Single decisions in chosen states: what is computed, who is admitted, what an end from outside leaves."""

from __future__ import annotations

import pytest

from antiphon.engine.backend import Sampled, Trim
from antiphon.engine.base import EngineFailure, Finish, Generation, Sampling, Step
from antiphon.engine.pace import FIRST_CHUNK
from antiphon.engine.prefix_cache import PrefixCache
from antiphon.engine.prefix_tree import Node
from antiphon.engine.state import Admit, Compute, Evict, Idle, Preempt, State
from tests.engine.arithmetic_backend import alone
from tests.engine.drive import Drive, decided, drive, text


def root(d: Drive) -> Node:
    return d.cache.tree.root("")


# What is computed


def test_without_requests_there_is_nothing_to_do() -> None:
    assert decided(drive().state) == Idle()


@pytest.mark.parametrize("can_trim", [True, False])
def test_a_prompt_of_one_token_decodes_at_once(can_trim: bool) -> None:
    d = drive(can_trim=can_trim)
    sequence = d.add([7], max_tokens=1)
    assert d.step() == [Admit(root(d), 0), Compute(((sequence, 1),))]
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
    d.state.apply(Admit(root(d), 0))
    sequence.sampler = d.backend.sampler(sequence.generation.sampling, [1])
    parts = [(sequence, 1)]
    [sampled] = d.backend.execute(d.state.batch(parts))
    assert isinstance(sampled, Sampled) and sampled.logprob is not None
    assert d.state.complete(parts, [sampled]) == [(sequence, Step((sampled.token,), None, (sampled.logprob,)))]


def test_alone_a_prompt_fills_the_batch() -> None:
    d = drive(batch_tokens=512)
    sequence = d.add(text(600))
    assert d.step()[-1] == Compute(((sequence, 512),))
    assert d.step()[-1] == Compute(((sequence, 88),))
    assert d.step()[-1] == Compute(((sequence, 1),))


def test_decoding_and_a_prompt_take_turns_in_chunks() -> None:
    d = drive(batch_tokens=512)
    short = d.add(text(3))
    d.step()
    long = d.add(text(150, start=100))
    for count in (FIRST_CHUNK, FIRST_CHUNK, 150 - 2 * FIRST_CHUNK):
        assert d.step()[-1] == Compute(((short, 1),))
        assert d.step()[-1] == Compute(((long, count),))
    assert d.step()[-1] == Compute(((short, 1), (long, 1)))


def test_the_chunk_is_what_it_was_set_to_and_for_all_prompts_together() -> None:
    d = drive(batch_tokens=512)
    d.state.prefill_chunk = 100
    short = d.add(text(3))
    d.step()
    first, second = d.add(text(60, start=100)), d.add(text(60, start=180))
    assert d.step()[-1] == Compute(((short, 1),))
    assert d.step()[-1] == Compute(((first, 60), (second, 40)))


def test_decoding_goes_first_even_if_the_prompt_is_older() -> None:
    d = drive(batch_tokens=40)
    long = d.add(text(39))
    short = d.add(text(1, start=100))
    assert d.step()[-1] == Compute(((short, 1),))
    assert d.step()[-1] == Compute(((long, 39),))


def test_the_end_of_a_prompt_has_its_own_budget() -> None:
    d = drive()
    d.add(text(5), max_tokens=20)
    d.step()
    d.state.prefill_chunk, d.state.prefill_end = 64, 32
    d.add(text(120, start=100), max_tokens=1)
    steps = [decision for _ in range(6) for decision in d.step() if isinstance(decision, Compute)]
    assert [sum(count for _, count in step.parts) for step in steps if step.parts[0][1] > 1] == [64, 32, 24]


def test_a_small_batch_is_shared_in_the_order_of_arrival() -> None:
    d = drive(batch_tokens=64)
    first, second, third = (d.add(text(40, start), max_tokens=3) for start in (0, 50, 100))
    assert d.step()[-1] == Compute(((first, 40), (second, 24)))
    assert d.step()[-1] == Compute(((first, 1),))
    assert d.step()[-1] == Compute(((second, 16), (third, 40)))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))


def test_a_batch_that_is_just_as_large_as_all_who_decode() -> None:
    d = drive(lanes=3, batch_tokens=3)
    first, second, third = (d.add(text(3, start)) for start in (0, 50, 100))
    assert d.step()[-1] == Compute(((first, 3),))
    assert d.step()[-1] == Compute(((first, 1),))
    assert d.step()[-1] == Compute(((second, 3),))
    assert d.step()[-1] == Compute(((first, 1), (second, 1)))
    assert d.step()[-1] == Compute(((third, 3),))
    assert d.step()[-1] == Compute(((first, 1), (second, 1), (third, 1)))


# Who is admitted


def test_first_come_first_served_when_the_lanes_are_full() -> None:
    d = drive(lanes=2)
    first, second, third, fourth = (d.add(text(10, 20 * n), max_tokens=5 - n) for n in range(4))
    d.step()
    assert d.state.running == [first, second]
    assert list(d.state.waiting) == [third, fourth]
    d.run()
    assert list(d.ended) == [second, first, third, fourth]


def test_a_lane_is_used_again() -> None:
    d = drive(lanes=1)
    sequences = [d.add(text(10, 20 * n), max_tokens=2) for n in range(4)]
    d.run()
    assert [d.outputs[sequence] for sequence in sequences] == [alone(text(10, 20 * n), 2) for n in range(4)]
    assert [sequence.lane for sequence in sequences] == [-1] * 4


@pytest.mark.parametrize("nodes", [0, 24])
def test_without_trimming_nothing_is_shared_or_kept(nodes: int) -> None:
    d = drive(can_trim=False, nodes=nodes)
    for _ in range(2):
        sequence = d.add(text(40), max_tokens=3)
        assert d.step()[0] == Admit(root(d), 0)
        d.run()
        assert d.outputs[sequence] == alone(text(40), 3)
    assert d.state.free == d.backend.cells
    assert d.backend.computed == 2 * 42


def test_what_was_admitted_is_counted_once() -> None:
    d = drive(batch_tokens=16)
    d.add(text(40))
    d.step()
    assert (d.state.prompt_tokens, d.state.cached_tokens) == (40, 0)
    d.add(text(50, start=100))
    d.step()
    d.state.apply(Preempt())
    d.run()
    assert (d.state.prompt_tokens, d.state.cached_tokens, d.state.preempted) == (90, 0, 1)
    d.add(text(40), max_tokens=1)
    d.run()
    assert (d.state.prompt_tokens, d.state.cached_tokens) == (130, 39)


# Ends from outside


def test_removing_is_idempotent_in_every_phase() -> None:
    d = drive(lanes=1)
    running, waiting = d.add(text(10)), d.add(text(10, start=100))
    d.step()
    for sequence in (waiting, running, running, waiting):
        d.state.remove(sequence)
        assert sequence not in d.state.running
        assert sequence not in d.state.waiting
    assert d.node(text(10)).tokens == text(10)
    assert decided(d.state) == Idle()


def test_a_cancelled_prompt_leaves_what_it_computed_as_a_prefix() -> None:
    d = drive(batch_tokens=16)
    first = d.add(text(40))
    d.step()
    d.cancel(first)
    again = d.add(text(40), max_tokens=2)
    assert d.step()[0] == Admit(d.node(text(40)), 16)
    d.run()
    assert d.outputs[again] == alone(text(40), 2)


@pytest.mark.parametrize("steps", [0, 1])
def test_dropping_empties_the_lane_even_where_the_count_says_it_is_empty(steps: int) -> None:
    """A batch that failed may have left half of itself in the cache."""
    d = drive()
    sequence = d.add(text(10))
    for _ in range(steps):
        d.step()
    if not steps:
        d.state.apply(Admit(root(d), 0))
    lane = sequence.lane
    d.state.drop(sequence)
    d.state.drop(sequence)
    assert list(d.cache.tree.nodes()) == []
    assert d.state.free == d.backend.cells
    assert d.state.batch().moves == (Trim(lane, 0),)


def test_dropping_throws_away_the_prefix_that_nobody_else_uses() -> None:
    """What it has read may be what was wrong."""
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    d.add([*text(40), *text(20, start=100)], max_tokens=1)
    d.run()
    sequence = d.add([*text(40), 7, 8, 9])
    d.step()
    d.state.drop(sequence)
    assert list(d.cache.tree.nodes()) == []
    assert d.state.free == d.backend.cells


def test_dropping_throws_away_what_is_outside_too() -> None:
    d = drive(ram=100)
    d.add(text(40), max_tokens=1)
    d.run()
    d.add([*text(40), *text(20, start=100)], max_tokens=1)
    d.run()
    d.state.apply(Evict(d.node([*text(40), *text(20, start=100)])))
    sequence = d.add([*text(40), 7, 8, 9])
    d.step()
    d.fail(sequence)
    assert list(d.cache.tree.nodes()) == []
    assert d.shelf.in_ram == 0


def test_dropping_keeps_what_others_use() -> None:
    d = drive()
    d.add(text(40), max_tokens=1)
    d.run()
    sequence, other = d.add([*text(40), 7, 8, 9]), d.add([*text(30), 255], max_tokens=2)
    d.step()
    d.fail(sequence)
    assert [node.tokens for node in d.cache.tree.nodes()] == [text(30)]
    d.run()
    assert d.outputs[other] == alone([*text(30), 255], 2)


def test_dropping_who_waits_touches_no_lane() -> None:
    d = drive(lanes=1)
    running = d.add(text(10))
    d.step()
    waiting = d.add(text(20, start=100))
    d.state.drop(waiting)
    assert d.state.running == [running]
    assert not d.state.waiting
    assert d.state.batch().moves == ()


def test_who_cannot_be_sampled_is_dropped_and_the_others_go_on() -> None:
    d = drive()
    first, second = d.add(text(10)), d.add(text(10, start=100))
    d.state.apply(Admit(root(d), 0))
    d.state.apply(Admit(root(d), 0))
    failure = EngineFailure("no numbers")
    outcomes = d.state.complete([(first, 10), (second, 10)], [failure, Sampled(5, False)])
    assert outcomes == [(first, failure), (second, Step((5,)))]
    assert d.state.running == [second]
    assert list(d.cache.tree.nodes()) == []


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot hold 4 decoding"):
        State(PrefixCache(()), lanes=4, cells=10, batch_tokens=3, context_length=10)
    with pytest.raises(ValueError, match="does not fit"):
        State(PrefixCache(()), lanes=4, cells=10, batch_tokens=4, context_length=11)
