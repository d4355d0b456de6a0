"""How much a step should do and with how many threads, learned from the steps that were measured.

Rules
* Nothing here reads a clock, waits or starts a thread: seconds come in, numbers go out.
* A step costs about `decode(sequences)` or `prompt tokens * token`, both learned. An estimate is the median of the last
  few measurements, so that one slow step changes nothing, and a machine that is quiet again is believed after five.
* Threads of a decode spin and wait for each other: where another process takes a core, each of them waits for the one
  that lost it. So the number of threads is found by trial, and what trials may cost is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

LEAST_CHUNK = 32
"""Prompt tokens that a step computes whatever it costs, so that prompts always move on. The weights are read once a
step: 32 tokens still come to 60 % of the best prefill rate (233 of 392 tokens a second on two CPU cores), and below
that the rate falls nearly as the chunk does."""

TILE = 64
"""Tokens of a step from which llama.cpp's flash attention on the CPU computes them in tiles (GGML_FA_TILE_Q). Behind a
long prompt that is cheaper: at position 2,000 of a small model 64 tokens take 0.42 s, 32 take 0.37 s."""

TILE_GAIN = 1.5
"""A tile is taken instead of the least chunk, of half its size, if it takes no more than so many times as long."""

FIRST_CHUNK = 64
"""Prompt tokens beside decoding sequences before any were measured: 0.2 s for a small model on two CPU cores."""

WINDOW = 9
"""Measurements behind an estimate: four may be far off without moving it, and five new ones move it."""

PREFILL_WINDOW = 5
"""The same for prompt tokens, which cost more the further a prompt has come."""

RECENT = 8
"""Decode steps that tell what the present number of threads costs; the slowest of them does not count."""

SLOWER = 1.5
"""Times the normal cost that a decode step may take. Noise and growing contexts stay below it for most steps; two
threads beside a busy process take 2 to 50 times as long."""

CLIPPED = 4.0
"""Times the normal cost that one step counts at most: no single step raises the alarm."""

ALARM = 8.0
"""Sum of what steps took beyond `SLOWER`, in normal costs, at which other numbers of threads are tried: the fourth
step in a row that is four times as slow, the seventeenth that is twice as slow (a cumulative sum, as Page described in
1954); slow steps by chance are too far apart.
"""

TRIAL_STEPS = 5
"""Decode steps that decide about a number of threads."""

HOPELESS = 2.0
"""Times the cost to be beaten at which one step ends a trial: with a core taken away, one step can last a second."""

CLEARLY_LESS = 0.75
"""Fewer threads are kept only at this part of the cost: prefill gains more from threads than the decode steps that are
compared, and with a core really taken away a step costs less than half. More threads are kept if they cost no more."""

SHARE = 0.02
"""Part of all steps, and of all time, that trials nobody gains from may take."""

FIRST_WAIT = RECENT
"""Decode steps before the first trial: a machine that was never seen quiet raises no alarm."""

SHORTEST_WAIT = round(TRIAL_STEPS / SHARE)
LONGEST_WAIT = 4 * SHORTEST_WAIT
"""Decode steps between trials without an alarm: doubled by each that changes nothing, and by more threads that did not
last. A quiet machine is found again after the longest, 10 to 60 seconds of decoding; a change has lasted after it."""

LONGEST_DEBT = 20 * SHORTEST_WAIT
"""Decode steps at most that pay back what a trial cost: enough for a step that took 100 times as long."""


class Pace:
    """For one engine. `step_target` in seconds; `batch_tokens` is all that a step may compute."""

    def __init__(self, *, step_target: float, batch_tokens: int, threads: int) -> None:
        self._target = step_target
        self._batch_tokens = batch_tokens
        # By the number of sequences, of which there are at most as many as the backend has lanes.
        self._decode: dict[int, deque[float]] = {}
        # Of a prompt token, by whether the step was large enough for tiles.
        self._token: dict[bool, deque[float]] = {tiled: deque(maxlen=PREFILL_WINDOW) for tiled in (True, False)}
        self._threads = ThreadChoice(threads)

    @property
    def threads(self) -> int:
        """How many threads the next step should use if it only decodes."""
        return self._threads.threads

    @property
    def prefill_threads(self) -> int:
        """The same for a step with prompt tokens, which is never a trial: it takes long, and cannot be compared."""
        return self._threads.settled

    def prefill_budget(self, decoding: int) -> int:
        """How many prompt tokens the next step may compute between two steps of so many decoding sequences.

        With none, nobody waits for the step: all that fits.
        """
        return min(self._chunk(decoding), self._batch_tokens) if decoding else self._batch_tokens

    def prefill_end(self, decoding: int) -> int:
        """The same where what is left of the prompts fills no tile: where a tile is over the target, so many tokens
        without one would take longer still."""
        if not decoding or self._tile_fits(self._rest(decoding)):
            return self.prefill_budget(decoding)
        return LEAST_CHUNK

    def _tile_fits(self, rest: float) -> bool:
        """Whether these seconds are enough for a tile, as far as it is known."""
        return not self._token[True] or rest >= TILE * _middle(self._token[True])

    def _rest(self, decoding: int) -> float:
        """What so many decoding sequences leave of the target; in seconds."""
        return self._target - self._decode_seconds(decoding)

    def _chunk(self, decoding: int) -> int:
        tiled, small = (_middle(self._token[kind]) if self._token[kind] else None for kind in (True, False))
        rest = self._rest(decoding)
        if tiled is None:
            return FIRST_CHUNK if small is None else max(LEAST_CHUNK, int(rest / small))
        if self._tile_fits(rest):
            return max(LEAST_CHUNK, int(rest / tiled))
        if small is not None and TILE * tiled <= TILE_GAIN * LEAST_CHUNK * small:
            return TILE
        # One tile at most: what a token cost without tiles may have been at the start of some prompt.
        return min(max(LEAST_CHUNK, int(rest / (small or tiled))), TILE)

    def note(self, *, decoding: int, prefilled: int, seconds: float) -> None:
        """A step took so long, with as many threads as were said before it. It decoded, or it had prompt tokens."""
        if prefilled >= LEAST_CHUNK:  # The end of a prompt says little about a token's cost.
            self._token[prefilled >= TILE].append(seconds / prefilled)
        elif decoding and not prefilled:
            self._decode.setdefault(decoding, deque(maxlen=WINDOW)).append(seconds)
            self._threads.note(decoding, seconds)

    def _decode_seconds(self, decoding: int) -> float:
        """Of so many sequences, or of the nearest number that was measured."""
        if not self._decode:
            return 0.0
        return _middle(self._decode[min(self._decode, key=lambda known: abs(known - decoding))])


class Trial:
    """Numbers of threads that are tried in turn; `base` is what the present number costs."""

    def __init__(self, rungs: Iterable[int], base: float, alarm: bool) -> None:
        self.rungs = deque(rungs)
        self.base = base
        self.alarm = alarm
        self.costs: list[float] = []  # of the rung that is tried now
        self.best: tuple[float, int] | None = None  # cost and rung
        self.steps = 0
        self.loss = 0.0

    @property
    def limit(self) -> float:
        """The least cost so far."""
        return self.base if self.best is None else self.best[0]

    def note(self, cost: float) -> None:
        self.costs.append(cost)
        self.steps += 1
        self.loss += max(0.0, cost - self.base)

    def accept(self, cost: float, limit: float) -> None:
        """What is tried now is the best so far, if it costs no more than `limit`."""
        if cost <= limit:
            self.best = cost, self.rungs[0]

    def next(self, *, last: bool) -> None:
        self.costs.clear()
        self.rungs.popleft()
        if last:
            self.rungs.clear()


class ThreadChoice:
    """The number of threads for the next step, 1 to `threads`.

    Costs are relative to the least known for the same number of sequences, so that all steps can be compared.
    """

    def __init__(self, threads: int) -> None:
        self._rungs = ladder(threads)
        self._at = len(self._rungs) - 1
        self._least: dict[int, float] = {}  # seconds, by the number of sequences
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._normal = 1.0
        self._excess = 0.0
        self._slow_for = 0  # decode steps since the excess rose from nothing
        self._wait: float = FIRST_WAIT
        # Before the next trial, by whether all threads are used.
        self._pauses = {True: SHORTEST_WAIT, False: SHORTEST_WAIT}
        self._kept = LONGEST_WAIT  # decode steps since the last change
        self._trial: Trial | None = None
        self._paused = False

    @property
    def settled(self) -> int:
        """Without what is tried just now."""
        return self._rungs[self._at]

    @property
    def threads(self) -> int:
        if self._trial is None or self._paused:
            return self.settled
        return self._rungs[self._trial.rungs[0]]

    def note(self, decoding: int, seconds: float) -> None:
        """A step that only decoded took so long."""
        if self._trial is None:
            self._watch(self._cost(decoding, seconds))
        elif self._paused or decoding not in self._least:
            self._paused = decoding not in self._least
            self._cost(decoding, seconds)
        else:
            self._judge(self._trial, seconds / self._least[decoding])

    def _cost(self, decoding: int, seconds: float) -> float:
        known = self._least.get(decoding)
        # The first step with so many sequences is taken to be as slow as the others are now.
        self._least[decoding] = seconds / _middle(self._recent or [1.0]) if known is None else min(known, seconds)
        return seconds / self._least[decoding]

    def _watch(self, cost: float) -> None:
        self._recent.append(cost)
        self._kept += 1
        self._wait -= 1
        self._excess = max(0.0, self._excess + min(cost / self._normal, CLIPPED) - SLOWER)
        self._slow_for = self._slow_for + 1 if self._excess else 0
        below = range(self._at - 1, -1, -1)
        if self._excess > ALARM:
            self._start(below, _level(list(self._recent)[-self._slow_for :]), alarm=True)
        elif self._wait <= 0:
            above = range(self._at + 1, min(self._at + 2, len(self._rungs)))
            # Without an alarm, two slow steps among the recent ones are chance.
            self._start([*above, *below], _middle(self._recent))

    def _start(self, rungs: Iterable[int], base: float, *, alarm: bool = False) -> None:
        trial = Trial(rungs, base, alarm)
        if trial.rungs:
            self._trial, self._paused = trial, False
        else:  # One thread cannot do with less: slow is normal now.
            self._normal, self._excess = base, 0.0

    def _judge(self, trial: Trial, cost: float) -> None:
        trial.note(cost)
        more = trial.rungs[0] > self._at
        # More threads may stall, and each step that does counts. Of fewer, one slow step is chance.
        hopeless = sorted([0.0, *trial.costs])[-1 if more else -2] > HOPELESS * trial.limit
        if len(trial.costs) < TRIAL_STEPS and not hopeless:
            return
        if not hopeless:
            cost = sum(trial.costs) / TRIAL_STEPS if more else _level(trial.costs)
            trial.accept(cost, trial.base if more else CLEARLY_LESS * trial.limit)
        # Where more are good, nothing else need be tried; where fewer are hopeless, still fewer are worse.
        trial.next(last=trial.best is not None if more else hopeless)
        if not trial.rungs:
            self._decide(trial)

    def _decide(self, trial: Trial) -> None:
        self._trial, self._paused, self._excess = None, False, 0.0
        cost, rung = trial.best or (trial.base, self._at)
        cost = max(cost, 1.0)  # What was less becomes the least known with the next step.
        paid_back = min(trial.loss / SHARE, LONGEST_DEBT)
        self._wait = max(self._next_pause(rung, trial.alarm), trial.steps / SHARE, paid_back)
        if self._at < rung < len(self._rungs) - 1:
            self._wait = 0.0  # More were good, still more may be.
        self._normal = cost
        if rung != self._at:
            self._at, self._kept = rung, 0
            self._recent = deque([cost], maxlen=RECENT)

    def _next_pause(self, rung: int, alarm: bool) -> int:
        """Longer where nothing came of looking, and where more threads did not last; shortest when something is new."""
        all_used = rung == len(self._rungs) - 1
        same, relapse = rung == self._at, rung < self._at and self._kept < LONGEST_WAIT
        if relapse or (same and not alarm):
            self._pauses[all_used] = min(2 * self._pauses[all_used], LONGEST_WAIT)
        elif alarm:
            self._pauses[all_used] = SHORTEST_WAIT
        return self._pauses[all_used]


def ladder(threads: int) -> list[int]:
    """The numbers that are tried, upwards: all threads, one less (a busy process takes one core), and halves."""
    rungs = {threads, max(1, threads - 1)}
    while threads > 1:
        threads //= 2
        rungs.add(threads)
    return sorted(rungs)


def _middle(measured: Iterable[float]) -> float:
    """The median; of an even number the lower one, since what is slow is more often the exception."""
    ordered = sorted(measured)
    return ordered[(len(ordered) - 1) // 2]


def _level(costs: Iterable[float]) -> float:
    """The mean without the largest, 1 if there are none: many slow steps count as they cost, a single one does not."""
    ordered = sorted(costs)
    kept = ordered[:-1] or ordered or [1.0]
    return sum(kept) / len(kept)
