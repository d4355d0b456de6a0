"""`Pace` against simulated machines: what a step costs depends on chunk, threads, and on who else uses the cores.

The machines are drawn from seeds, so every run is the same. Seconds are simulated: nothing here takes time.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from antiphon.engine.pace import (
    FIRST_CHUNK,
    FIRST_WAIT,
    LEAST_CHUNK,
    LONGEST_DEBT,
    LONGEST_WAIT,
    SHARE,
    SHORTEST_WAIT,
    TILE,
    TRIAL_STEPS,
    Pace,
    ladder,
)

TARGET = 0.25
BATCH = 512


class Machine:
    """Costs like those measured with a small model on two cores; `taken` is the factor of a foreign process on steps
    that use more threads than cores are left."""

    def __init__(self, seed: int, *, cores: int = 2, noise: float = 0.08, outliers: float = 0.02) -> None:
        self._random = random.Random(seed)
        self._cores = cores
        self._noise = noise
        self._outliers = outliers
        self.busy = 0  # cores that others use
        self.taken = 10.0
        self.scale = 1.0

    def seconds(self, decoding: int, prefilled: int, threads: int) -> float:
        parallel = 0.2 + 0.8 * self._cores / threads  # a fifth of a step gains nothing from threads
        ideal = 0.006 + 0.005 * decoding * bool(decoding) + 0.0026 * prefilled
        stalled = self.taken if threads > self._cores - self.busy else 1.0
        if self._random.random() < self._outliers:
            stalled *= self._random.uniform(2, 20)
        return self.scale * ideal * parallel * stalled * self._random.lognormvariate(0, self._noise)


def make(threads: int = 2, batch_tokens: int = BATCH) -> Pace:
    return Pace(step_target=TARGET, batch_tokens=batch_tokens, threads=threads)


def mixed(pace: Pace, machine: Machine, steps: int, decoding: int = 4) -> list[tuple[int, float]]:
    """Budgets, and the seconds of a decode step and a step with as many prompt tokens as the budget allows."""
    seen = []
    for _ in range(steps):
        chunk = pace.prefill_budget(decoding)
        decoded = machine.seconds(decoding, 0, pace.threads)
        pace.note(decoding=decoding, prefilled=0, seconds=decoded)
        prefilled = machine.seconds(0, chunk, pace.prefill_threads)
        pace.note(decoding=0, prefilled=chunk, seconds=prefilled)
        seen.append((chunk, decoded + prefilled))
    return seen


def decode(pace: Pace, machine: Machine, steps: int, sequences: int | Callable[[int], int] = 4) -> list[int]:
    """The number of threads of each step."""
    used = []
    for step in range(steps):
        decoding = sequences if isinstance(sequences, int) else sequences(step)
        used.append(pace.threads)
        pace.note(decoding=decoding, prefilled=0, seconds=machine.seconds(decoding, 0, pace.threads))
    return used


def test_before_anything_was_measured() -> None:
    pace = make()
    assert pace.prefill_budget(0) == BATCH
    assert pace.prefill_budget(1) == pace.prefill_budget(8) == FIRST_CHUNK
    assert pace.threads == 2


@pytest.mark.parametrize("decoding", [1, 4, 8])
@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_steps_settle_near_the_target(decoding: int, scale: float) -> None:
    pace, machine = make(), Machine(1, noise=0.05, outliers=0)
    machine.scale = scale
    decode(pace, machine, 9, decoding)
    settled = mixed(pace, machine, 30, decoding)[5:]
    for chunk, seconds in settled:
        assert LEAST_CHUNK <= chunk <= BATCH
        assert seconds == pytest.approx(TARGET, rel=0.25)


@pytest.mark.parametrize("decoding", [1, 4, 8])
def test_a_tile_is_taken_where_less_costs_nearly_as_much(decoding: int) -> None:
    """As behind a prompt of 4,000 tokens: 20 ms a token in small steps, 12 in tiles; both are over the target."""
    pace = make()
    chunks = []
    for _ in range(20):
        chunk = pace.prefill_budget(decoding)
        cost = 0.012 if chunk >= TILE else 0.020
        pace.note(decoding=0, prefilled=chunk, seconds=cost * chunk)
        chunks.append(chunk)
    assert set(chunks[3:]) == {TILE}


def test_the_end_of_a_prompt_is_cut_where_a_tile_is_over_the_target() -> None:
    pace = make()
    assert pace.prefill_end(4) == pace.prefill_budget(4)
    pace.note(decoding=0, prefilled=100, seconds=100 * 0.0026)
    assert pace.prefill_end(4) == pace.prefill_budget(4) > TILE
    for _ in range(5):
        pace.note(decoding=0, prefilled=TILE, seconds=TILE * 0.012)
    assert pace.prefill_end(4) == LEAST_CHUNK


def test_a_small_step_at_the_start_of_a_prompt_says_nothing_for_long() -> None:
    """40 tokens at 2.7 ms each, once; far on in another prompt a token costs 20 ms in small steps, 12 in tiles."""
    pace = make()
    pace.note(decoding=0, prefilled=40, seconds=40 * 0.0027)
    chunks = []
    for _ in range(20):
        chunk = pace.prefill_budget(4)
        pace.note(decoding=0, prefilled=chunk, seconds=(0.012 if chunk >= TILE else 0.020) * chunk)
        chunks.append(chunk)
    assert set(chunks[10:]) == {TILE}


def test_a_tile_is_not_taken_where_it_costs_twice_as_much() -> None:
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    machine.scale = 10
    assert {chunk for chunk, _ in mixed(pace, machine, 20)[2:]} == {LEAST_CHUNK}


@pytest.mark.parametrize("first", [0, 20])
def test_what_decoding_takes_is_left_out_of_the_budget(first: int) -> None:
    """With or without steps that only decoded: the target is met either way, at once or a few steps later."""
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    decode(pace, machine, first, 8)
    chunks = [chunk for chunk, _ in mixed(pace, machine, 30, 8)]
    assert chunks[-1] == pytest.approx((TARGET - 0.046 - 0.006) / 0.0026, rel=0.02)
    if first:
        assert chunks[1] == pytest.approx(chunks[-1], rel=0.05)


def test_the_budget_stays_between_its_limits() -> None:
    pace, slow, fast = make(), Machine(1), Machine(2)
    slow.scale, fast.scale = 100, 0.01
    decode(pace, slow, 9)
    slowest = [chunk for chunk, _ in mixed(pace, slow, 20)[1:]]
    assert set(slowest) <= {LEAST_CHUNK, TILE} and slowest.count(LEAST_CHUNK) > 12
    assert pace.prefill_budget(0) == BATCH
    assert {chunk for chunk, _ in mixed(make(), fast, 20)[1:]} == {BATCH}
    assert make(batch_tokens=8).prefill_budget(6) == 8, "no more than the batch holds, even below the least chunk"


@pytest.mark.parametrize("spike", [10.0, 1000.0])
def test_slow_steps_do_not_starve_prefill(spike: float) -> None:
    pace, machine = make(), Machine(1, noise=0.02, outliers=0)
    before = mixed(pace, machine, 20)[-1][0]
    for _ in range(2):
        pace.note(decoding=0, prefilled=before, seconds=TARGET * spike)
    assert pace.prefill_budget(4) == pytest.approx(before, rel=0.1)


def test_a_lasting_change_is_followed_and_forgotten_when_it_is_over() -> None:
    pace, machine = make(), Machine(1, noise=0.02, outliers=0)
    before = mixed(pace, machine, 20)[-1][0]
    machine.scale = 30
    assert mixed(pace, machine, 20)[-1][0] == LEAST_CHUNK
    machine.scale = 1
    assert mixed(pace, machine, 20)[-1][0] == pytest.approx(before, rel=0.1)


def test_the_ends_of_prompts_and_steps_without_tokens_teach_nothing_about_prefill() -> None:
    pace, machine = make(), Machine(1, noise=0.02, outliers=0)
    before = mixed(pace, machine, 20)[-1][0]
    for _ in range(20):
        pace.note(decoding=0, prefilled=1, seconds=0.03)
        pace.note(decoding=0, prefilled=0, seconds=5.0)
    assert pace.prefill_budget(4) == before


def test_the_ladder() -> None:
    assert [ladder(n) for n in (1, 2, 3, 4)] == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert ladder(16) == [1, 2, 4, 8, 15, 16]


@pytest.mark.parametrize("seed", range(5))
def test_a_quiet_machine_keeps_its_threads(seed: int) -> None:
    """Trials take their share of steps and no more, and hiccups do not count as load."""
    used = decode(make(), Machine(seed), 20_000, lambda step: 1 + step // 7 % 8)
    assert used.count(1) < 2 * SHARE * len(used)
    assert longest_run(used, 1) < 2 * LONGEST_WAIT


def test_without_noise_only_trials_use_fewer_threads() -> None:
    used = decode(make(), Machine(1, noise=0, outliers=0), 20_000)
    assert used[:FIRST_WAIT] == [2] * FIRST_WAIT
    assert 0 < used.count(1) <= SHARE / 2 * len(used), "the pauses between trials grow"


@pytest.mark.parametrize("taken", [2.5, 10.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_core_that_is_taken_and_given_back(taken: float, seed: int) -> None:
    pace, machine = make(), Machine(seed)
    machine.taken = taken
    decode(pace, machine, 2000)
    machine.busy = 1
    noticed = decode(pace, machine, 100)
    assert noticed.index(1) <= 20
    during = decode(pace, machine, 3000)
    assert during.count(2) <= SHARE * len(during)
    machine.busy = 0
    after = decode(pace, machine, 10_000)
    assert settled(after) == 2
    assert after.index(2) <= (LONGEST_WAIT if taken < 10 else LONGEST_DEBT), (
        "the pause pays for the last trial, no more"
    )


def test_a_machine_that_was_never_quiet() -> None:
    pace, machine = make(), Machine(3)
    machine.busy = 1
    used = decode(pace, machine, 500)
    assert set(used[FIRST_WAIT + TRIAL_STEPS :][:200]) == {1}


def test_a_machine_that_was_never_quiet_raises_no_alarm_afterwards() -> None:
    """The least cost known was far too high: what comes after the first trial is normal."""
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    machine.busy, machine.taken = 1, 100
    used = decode(pace, machine, FIRST_WAIT + TRIAL_STEPS + SHORTEST_WAIT)
    assert used[FIRST_WAIT:] == [1] * (TRIAL_STEPS + SHORTEST_WAIT)


def test_one_thread_of_a_slow_machine_is_normal_after_a_while() -> None:
    """Otherwise every further slow step would count as a load that is new."""
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    machine.busy, machine.taken = 1, 100
    decode(pace, machine, 100)
    machine.scale = 3
    decode(pace, machine, 50)
    machine.busy = 0
    used = decode(pace, machine, 400)
    assert settled(used) == 2


def test_a_number_of_sequences_first_seen_under_load_is_no_measure_of_quiet() -> None:
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    decode(pace, machine, 500, 4)
    machine.busy, machine.taken = 1, 3
    decode(pace, machine, 5, 4)
    assert 1 in decode(pace, machine, 30, lambda step: 5 + step % 3)


def test_many_cores_of_which_some_are_taken() -> None:
    """One less does not help when four are taken: the next number below is tried in the same row."""
    for busy, best in ((1, 15), (4, 8), (10, 4)):
        pace, machine = make(16), Machine(4, cores=16, outliers=0)
        machine.taken = 100
        decode(pace, machine, 500)
        machine.busy = busy
        assert settled(decode(pace, machine, 300)) == best
        machine.busy = 0
        assert settled(decode(pace, machine, 10_000)) == 16


def test_more_threads_are_looked_for_soon_after_each_new_load() -> None:
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    machine.taken = 2.5
    for _ in range(2):
        decode(pace, machine, 5000)
        machine.busy = 1
        used = decode(pace, machine, 5000)
        first = used.index(1) + TRIAL_STEPS
        assert used[first:].index(2) == SHORTEST_WAIT
        machine.busy = 0


def test_what_looking_for_more_threads_costs_is_paid_back() -> None:
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    machine.taken, machine.busy = 100, 1
    decode(pace, machine, 100)
    used = decode(pace, machine, 50_000)
    assert used.count(2) >= 5
    assert used.count(2) * machine.seconds(4, 0, 2) <= 1.1 * SHARE * len(used) * machine.seconds(4, 0, 1)


def test_a_machine_that_is_quiet_again_is_climbed_in_one_go() -> None:
    pace, machine = make(16), Machine(1, cores=16, noise=0, outliers=0)
    machine.taken, machine.busy = 100, 10
    assert settled(decode(pace, machine, 300)) == 4
    machine.busy = 0
    used = decode(pace, machine, 10_000)
    assert used.index(16) - used.index(8) <= 3 * (TRIAL_STEPS + 1)


LOADS: dict[str, Callable[[int], bool]] = {
    "never": lambda step: False,
    "always": lambda step: True,
    "a burst": lambda step: 5_000 <= step < 5_300,
    "half the time": lambda step: 5_000 <= step < 12_000,
    "on and off": lambda step: step // 1000 % 2 == 1,
    "quickly on and off": lambda step: step // 100 % 2 == 1,
    "now and then": lambda step: random.Random(step).random() < 0.3,
}


@pytest.mark.parametrize("taken", [2.5, 10.0, 100.0])
@pytest.mark.parametrize("load", LOADS)
def test_the_loss_against_the_best_number_in_hindsight_is_bounded(load: str, taken: float) -> None:
    def total(threads: int | None, seed: int) -> float:
        pace, machine, seconds = make(), Machine(seed), 0.0
        machine.taken = taken
        for step in range(20_000):
            machine.busy = int(LOADS[load](step))
            decoding = 1 + step // 13 % 8
            took = machine.seconds(decoding, 0, threads or pace.threads)
            pace.note(decoding=decoding, prefilled=0, seconds=took)
            seconds += took
        return seconds

    ours, best = total(None, 1), min(total(1, 1), total(2, 1))
    assert ours < 1.2 * best, f"{ours / best:.2f} times the best in hindsight"


def test_a_load_that_comes_and_goes_does_not_make_it_flap() -> None:
    pace, machine = make(), Machine(5)
    changes = 0
    for step in range(40_000):
        machine.busy = step // 50 % 2
        before = pace.threads
        pace.note(decoding=4, prefilled=0, seconds=machine.seconds(4, 0, before))
        changes += pace.threads != before
    assert changes < 100, "800 times the load came or went"


def test_contexts_that_grow_are_no_load() -> None:
    pace, machine = make(), Machine(6)
    used = []
    for step in range(20_000):
        machine.scale = 1 + step / 5_000
        used += decode(pace, machine, 1)
    assert used.count(1) < 2 * SHARE * len(used)


def test_prompts_are_computed_with_what_has_proved_itself() -> None:
    """A step with prompt tokens is long, and no trial."""
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    decode(pace, machine, FIRST_WAIT)
    for _ in range(TRIAL_STEPS):
        assert (pace.threads, pace.prefill_threads) == (1, 2)
        pace.note(decoding=0, prefilled=128, seconds=0.4)
        assert (pace.threads, pace.prefill_threads) == (1, 2)
        decode(pace, machine, 1)
    assert (pace.threads, pace.prefill_threads) == (2, 2)


def test_a_number_of_sequences_seen_first_in_a_trial_is_measured_with_the_usual_threads() -> None:
    pace, machine = make(), Machine(1, noise=0, outliers=0)
    decode(pace, machine, FIRST_WAIT)
    assert pace.threads == 1
    assert decode(pace, machine, 3, sequences=7) == [1, 2, 1]


def test_one_thread_is_never_less() -> None:
    pace, machine = make(1), Machine(1)
    assert set(decode(pace, machine, 1000)) == {1}
    machine.scale = 50
    assert set(decode(pace, machine, 1000)) == {1}


def settled(used: list[int]) -> int:
    """The number of threads of most of the last steps: a trial may run at the very end."""
    last = used[-100:]
    return max(last, key=last.count)


def longest_run(used: list[int], threads: int) -> int:
    longest = run = 0
    for each in used:
        run = run + 1 if each == threads else 0
        longest = max(longest, run)
    return longest
