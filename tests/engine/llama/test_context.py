"""What a slot needs to go on, and when it cannot be brought back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.engine.backend import Entry, Trim
from antiphon.engine.llama.binding import open_library
from antiphon.engine.llama.context import Context, Shape
from antiphon.engine.llama.gguf import inspect
from antiphon.engine.llama.model import Model
from tests.engine.llama.conftest import LoadTiny
from tests.engine.llama.generate import JUDGED, assert_same_but_for_ties, generate, move, prefill
from tests.tiny_model import Tiny, write_tiny_model

TEXT = [5 + (i * i) % 200 for i in range(100)]


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    path = write_tiny_model(tmp_path / "m.gguf", Tiny(family=request.param))
    return Model(open_library(), inspect(open_library(), path), 0, None)


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    made = Context(model, Shape(cells=256, lanes=3, slots=3, batch_tokens=256), 1)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("model", "first"), [("llama", 0), ("qwen3", 0), ("gemma3", 85), ("mamba", 99), ("jamba", 99)], indirect=["model"]
)
def test_what_is_needed_before_position_100(model: Model, first: int) -> None:
    assert model.first_needed(100) == first
    assert model.first_needed(0) == 0


@pytest.mark.parametrize("model", ["llama"], indirect=True)
def test_a_slot_goes_back_to_any_position(context: Context) -> None:
    context.decode([Entry(0, 0, TEXT)])
    assert context.take_back([Entry(0, 90, TEXT[90:])])
    assert context.held(0) == range(90)


@pytest.mark.parametrize("model", ["mamba", "jamba"], indirect=True)
def test_a_recurrent_slot_does_not_go_back(context: Context) -> None:
    context.decode([Entry(0, 0, TEXT)])
    assert not context.take_back([Entry(0, 90, TEXT[90:])])
    assert context.take_back([Entry(0, 0, TEXT)])  # nothing is left, and nothing is needed


@pytest.mark.parametrize("model", ["gemma3"], indirect=True)
def test_a_slot_with_a_window_goes_back_as_far_as_nothing_is_overwritten(context: Context) -> None:
    """Lane 2 fills the cells that lane 1 leaves, and then those that lane 0 does not see any more."""
    context.decode([Entry(1, 0, TEXT[:20])])
    context.decode([Entry(0, 0, TEXT)])
    context.drop(Entry(1, 0, TEXT[:20]))
    assert context.held(0) == range(100)
    context.decode([Entry(2, 0, TEXT[:60])])
    assert context.held(0) == range(40, 100)
    assert context.take_back([Entry(0, 60, TEXT[60:])])
    assert not context.take_back([Entry(0, 50, TEXT[50:])])


def test_what_is_overwritten_was_not_seen(load_tiny: LoadTiny) -> None:
    backend = load_tiny(Tiny(family="gemma3"), lanes=3, cells=256, context_length=256)
    reference = generate(backend, [*TEXT, 9], 20, JUDGED)
    prefill(backend, 1, TEXT[:20])
    prefill(backend, 0, TEXT)
    move(backend, Trim(1, 0))
    prefill(backend, 2, TEXT[:95])
    assert_same_but_for_ties(generate(backend, [*TEXT, 9], 20, JUDGED, start=100), reference)
