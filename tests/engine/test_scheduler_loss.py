"""The context is lost: who runs is computed again, and those who may have broken it one by one."""

from __future__ import annotations

from antiphon.engine.state import Evict
from tests.engine.drive import drive, known, right, text


def test_after_a_loss_everybody_is_computed_again_in_the_same_order() -> None:
    d = drive(lanes=2, cells=100, context_length=100)
    first, second, third = (d.add(text(10 + n, start=50 * n), max_tokens=5) for n in range(3))
    d.step()
    d.lose()
    assert list(d.state.waiting) == [first, second, third]
    assert list(d.cache.tree.nodes()) == []
    assert d.state.free == 100
    d.run()
    assert right(d, first, second, third)


def test_suspects_run_alone_until_they_got_through_a_batch() -> None:
    d = drive()
    first, second, third = (d.add(text(10 + n, start=50 * n)) for n in range(3))
    d.step()
    d.state.lost([first, third])
    d.backend.reset()
    d.step()
    assert d.state.running == [first]
    d.cancel(first)
    d.step()
    assert d.state.running == [second]  # In the order of arrival, and still one by one.
    d.cancel(second)
    d.step()
    assert d.state.running == [third]
    fourth = d.add(text(10, start=200))
    d.step()
    assert d.state.running == [third, fourth]


def test_a_suspect_that_goes_away_is_none_any_more() -> None:
    d = drive()
    first, second = d.add(text(10)), d.add(text(10, start=100))
    d.step()
    d.state.lost([second])
    d.backend.reset()
    d.cancel(second)
    third = d.add(text(10, start=200))
    d.step()
    assert d.state.running == [first, third]


def test_what_is_outside_survives_a_loss() -> None:
    d = drive(cells=100, context_length=100, ram=100)
    node = known(d, text(50))
    d.state.apply(Evict(node))
    d.run()
    running = d.add(text(40, start=100))
    d.step()
    d.lose()
    d.cancel(running)
    again = d.add(text(50), max_tokens=1)
    d.run()
    assert again.cached == 49


def test_what_is_computed_again_after_a_loss_was_not_cached() -> None:
    d = drive()
    known(d, text(50))
    sequence = d.add([*text(50), 7, 8], max_tokens=3)
    d.step()
    assert sequence.cached == 50
    d.lose()
    d.run()
    assert right(d, sequence)
    assert sequence.cached == 0


def test_a_copy_that_was_still_to_be_made_is_lost_too() -> None:
    d = drive(cells=100, context_length=100, ram=100)
    node = known(d, text(50))
    d.state.apply(Evict(node))
    assert node.copy is not None
    d.state.lost([])
    assert node.copy is None
    assert list(d.cache.tree.nodes()) == []
    assert d.shelf.in_ram == 0
