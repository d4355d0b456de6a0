"""The scheduler's state and a backend, driven step by step without a thread, with every rule checked on the way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import NamedTuple

from antiphon.engine.backend import Parcel
from antiphon.engine.base import EngineFailure, Finish, Generation, Sampling
from antiphon.engine.prefix_cache import PrefixCache
from antiphon.engine.prefix_file import rooted
from antiphon.engine.prefix_shelf import Kind, Shelf
from antiphon.engine.prefix_store import Record, Unreadable
from antiphon.engine.prefix_tree import Copy, Node, Tree
from antiphon.engine.scheduler import decide
from antiphon.engine.sequence import Sequence
from antiphon.engine.state import Compute, Decision, Evict, Idle, Preempt, State
from tests.engine.arithmetic_backend import ArithmeticBackend, Ends, Hook, alone, never

BOOKS = (State, Sequence, PrefixCache, Shelf, Tree, Node, Copy, Parcel)


class File(NamedTuple):
    record: Record
    data: bytes


Data = bytes | bytearray | memoryview | None


class UnderWay(NamedTuple):
    """A transfer, and after how many steps it is done. What is written is what was there when it began."""

    left: int
    kind: Kind
    copy: Copy
    data: Data


def _under_way(delay: int, kind: Kind, copy: Copy) -> UnderWay:
    return UnderWay(delay, kind, copy, copy.parcel.data if kind is Kind.WRITE and copy.parcel is not None else None)


def picture(thing: object) -> object:
    """A deep copy of books in plain values, to see whether anything in them has changed."""
    seen: set[int] = set()

    def look(thing: object) -> object:
        if isinstance(thing, BOOKS):
            if id(thing) in seen:
                return id(thing)
            seen.add(id(thing))
            names = getattr(thing, "__slots__", None) or vars(thing)
            return [id(thing), *((name, look(getattr(thing, name))) for name in names)]
        if isinstance(thing, dict):
            return [(key, look(value)) for key, value in thing.items()]
        if isinstance(thing, set):
            return sorted(id(part) for part in thing), [look(part) for part in thing]
        if isinstance(thing, list | tuple | deque):
            return [part if isinstance(part, int) else look(part) for part in thing]
        return thing

    return look(thing)


def decided(state: State) -> Decision:
    """`decide`, and the proof that it only looked."""
    before = picture(state)
    decision = decide(state)
    assert picture(state) == before
    assert decide(state) == decision
    return decision


class Drive:
    """What the stepper does with a state and a backend, without its thread; it checks every rule at every step.

    `decide` is `decided`, unless a long run would copy its whole state too often. Files are a dictionary; a transfer is
    carried out when `delay` more steps have gone by.
    """

    def __init__(
        self,
        backend: ArithmeticBackend,
        decide: Callable[[State], Decision] = decided,
        *,
        ram: int = 0,
        disk: int | None = None,
        delay: int = 0,
    ) -> None:
        self.backend = backend
        self.decide = decide
        self.shelf = Shelf(ram=ram, disk=disk)
        self.ram, self.disk = ram, disk
        self.cache = PrefixCache(range(backend.lanes, backend.slots), self.shelf)
        self.state = State(
            self.cache,
            lanes=backend.lanes,
            cells=backend.cells,
            batch_tokens=backend.batch_tokens,
            context_length=backend.info.context_length,
        )
        self.files: dict[bytes, File] = {}  # the least recently used first
        self.refuses: Callable[[bytes], bool] = lambda key: False  # files that cannot be written or read
        self.unreadable: Callable[[bytes], bool] = lambda key: False  # files that cannot be read now
        self.delay = delay
        self.arrived: list[Sequence] = []
        self.outputs: dict[Sequence, list[int]] = {}
        self.ended: dict[Sequence, Finish | EngineFailure | None] = {}
        self._under_way: list[UnderWay] = []

    def add(self, prompt: Seq[int], max_tokens: int | None = None, seed: int = 0, owner: str = "") -> Sequence:
        generation = Generation(
            id=f"resp_{len(self.arrived)}",
            prompt=prompt,
            max_tokens=max_tokens,
            sampling=Sampling(seed=seed),
            owner=owner,
        )
        sequence = self.state.add(generation)
        self.arrived.append(sequence)
        self.outputs[sequence] = []
        return sequence

    def cancel(self, sequence: Sequence) -> None:
        self.state.remove(sequence)
        self._end(sequence, None)
        self._check_state()

    def fail(self, sequence: Sequence) -> None:
        """The backend cannot go on with this one."""
        self.state.drop(sequence)
        self._end(sequence, EngineFailure("dropped"))
        self._check_state()

    def lose(self) -> None:
        """The context is lost, in the batch of the youngest."""
        self.state.lost(self.state.running[-1:])
        self.backend.reset()
        self._check_state()

    def adopt(self, files: dict[bytes, File]) -> None:
        """An earlier process left these files; the store removes those whose path is not whole."""
        usable = {record.key for record in rooted(file.record for file in files.values())}
        self.files = {key: file for key, file in files.items() if key in usable}
        self.cache.adopt([file.record for file in self.files.values()])
        self._transfer()
        self._check_state()

    def step(self) -> list[Decision]:
        """One row of decisions, carried out."""
        row: list[Decision] = []
        while not isinstance(decision := self.decide(self.state), Compute | Idle):
            row.append(decision)
            if isinstance(decision, Preempt):
                assert len(self.state.running) > 1, "the oldest was preempted"
            self.state.apply(decision)
            self._check_state()
            assert len(row) <= 500, "no end of decisions"
        if isinstance(decision, Idle):
            assert not self.state.running
            self.backend.execute(self.state.batch())
            assert not self.state.waiting or self._under_way or self.shelf.transfers
        else:
            self._check_parts(decision)
            self._compute(decision)
        self._transfer()
        self._check_cache()
        return [*row, decision]

    def run(self) -> None:
        """Until nothing is left to do."""
        while self.step() != [Idle()] or self._under_way or self.shelf.transfers or self.state.waiting:
            pass

    def _check_parts(self, decision: Compute) -> None:
        """All that decode, or a chunk of prompts, and nobody waits for two turns of the others."""
        state, parts = self.state, decision.parts
        decoding = [sequence for sequence in state.running if sequence.pending == 1]
        assert parts and all(0 < count <= sequence.pending for sequence, count in parts)
        if parts[0][0].pending == 1:
            assert [sequence for sequence, _ in parts] == decoding
            assert not state.prefill_next or len(decoding) == len(state.running)
            return
        assert not decoding or (state.prefill_next and sum(count for _, count in parts) <= state.prefill_chunk)
        arrivals = [self.arrived.index(sequence) for sequence, _ in parts]
        assert arrivals == sorted(arrivals)

    def _check_state(self) -> None:
        state = self.state
        # Nobody overtakes: who runs came before who waits, whatever was preempted in between.
        alive = [*state.running, *state.waiting]
        assert alive == [sequence for sequence in self.arrived if sequence not in self.ended]
        lanes = [sequence.lane for sequence in state.running]
        assert len(set(lanes)) == len(lanes) and set(lanes) <= set(range(self.backend.lanes))
        assert 0 <= state.free <= state.cells
        self._check_tree()

    def _check_tree(self) -> None:
        """Every node is somewhere, what is above a node in the cache is there too, and everything adds up."""
        nodes = list(self.cache.tree.nodes())
        for node in nodes:
            assert node.tokens and node.parent is not None and node.start == node.parent.end
            assert node.parent.children[node.tokens[0]] is node
            assert node.resident or node.copy is not None, "a node that is nowhere"
            assert not node.resident or node.parent.parent is None or node.parent.resident
            if node.copy is not None:
                assert node in node.copy.nodes and node.copy.start <= node.start and node.end <= node.copy.end
        paths = [sequence.leaf.path() for sequence in self.state.running if sequence.leaf is not None]
        assert all(node.users == sum(node in path for path in paths) for node in nodes)
        assert all(node.resident for path in paths for node in path)
        slots = [node.slot for node in nodes if node.resident]
        assert len(set(slots)) == len(slots) and set(slots) <= set(range(self.backend.lanes, self.backend.slots))
        assert self.cache.resident == sum(len(node) for node in nodes if node.resident)
        copies = {node.copy for node in nodes if node.copy is not None}
        keys = [copy.record.key for copy in copies if copy.record is not None]
        assert len(set(keys)) == len(keys), "two copies for one file"
        assert self.shelf.in_ram == sum(len(copy) for copy in copies if copy.counted)
        assert self.shelf.on_disk == sum(len(copy) for copy in copies if copy.stored)
        assert self.shelf.in_ram <= self.ram
        assert self.disk is None or self.shelf.on_disk <= self.disk

    def _compute(self, decision: Compute) -> None:
        for sequence, _ in decision.parts:
            if sequence.sampler is None:
                generation = sequence.generation
                sequence.sampler = self.backend.sampler(generation.sampling, generation.prompt)
        sampled = self.backend.execute(self.state.batch(decision.parts))
        for sequence, outcome in self.state.complete(decision.parts, sampled):
            if isinstance(outcome, EngineFailure):
                self._end(sequence, outcome)
            else:
                self.outputs[sequence] += outcome.tokens
                if outcome.finish is not None:
                    self._end(sequence, outcome.finish)
        self._check_state()

    def _transfer(self) -> None:
        self._under_way += [_under_way(self.delay, one.kind, one.copy) for one in self.cache.transfers()]
        due = [one for one in self._under_way if one.left <= 0]
        self._under_way = [one._replace(left=one.left - 1) for one in self._under_way if one.left > 0]
        for one in due:
            self._carry_out(one.kind, one.copy, one.data)
            self._check_state()

    def _carry_out(self, kind: Kind, copy: Copy, data: Data) -> None:
        assert copy.record is not None
        key = copy.record.key
        if kind is Kind.REMOVE:
            self.files.pop(key, None)
        elif kind is Kind.READ:
            file = self.files.pop(key, None)
            assert file is None or file.record == copy.record, "the file is another copy's"
            if file is not None and self.unreadable(key):
                self.files[key] = file
                self.cache.read_done(copy, Unreadable.NOW)
            elif file is not None and not self.refuses(key):
                self.files[key] = file
                self.cache.read_done(copy, file.data)
            else:
                self.cache.read_done(copy, None)
        else:
            written = data is not None and not self.refuses(key)
            if data is not None and written:
                self.files[key] = File(copy.record, bytes(data))
            self.cache.write_done(copy, written)

    def _check_cache(self) -> None:
        """The books and the cache agree, once all moves are done."""
        if not self.cache.moves:
            held = [node for node in self.cache.tree.nodes() if node.resident]
            for node in held:
                assert self.backend.tokens(node.slot) == node.tokens
                assert self.backend.positions(node.slot) == list(range(node.start, node.end))
            assert self.backend.used == self.state.cells - self.state.free
        for sequence in self.state.running:
            assert self.backend.tokens(sequence.lane)[: sequence.computed] == sequence.tokens[: sequence.computed]

    def _end(self, sequence: Sequence, finish: Finish | EngineFailure | None) -> None:
        self.ended[sequence] = finish
        if sequence.sampler is not None:
            sequence.sampler.close()
            sequence.sampler = None

    def node(self, tokens: Seq[int], owner: str = "") -> Node:
        """The deepest node that begins like these tokens."""
        return self.cache.tree.match(owner, tokens, len(tokens))[0]


def drive(
    *,
    lanes: int = 3,
    nodes: int = 24,
    cells: int = 2048,
    batch_tokens: int = 512,
    context_length: int = 1024,
    can_trim: bool = True,
    ends: Ends = never,
    ram: int = 0,
    disk: int | None = None,
    delay: int = 0,
    hook: Hook | None = None,
) -> Drive:
    backend = ArithmeticBackend(
        lanes=lanes,
        nodes=nodes,
        cells=cells,
        batch_tokens=batch_tokens,
        context_length=context_length,
        can_trim=can_trim,
        ends=ends,
        hook=hook,
    )
    return Drive(backend, ram=ram, disk=disk, delay=delay)


def restarted(old: Drive, *, lanes: int = 3, nodes: int = 24, cells: int = 2048) -> Drive:
    """Another process that finds the files of the old one."""
    d = drive(lanes=lanes, nodes=nodes, cells=cells, ram=old.ram, disk=old.disk, delay=old.delay)
    d.adopt(old.files)
    return d


def text(length: int, start: int = 0) -> list[int]:
    """A prompt; two with different starts have no prefix in common."""
    return [(start + place) % 251 for place in range(length)]


def lengths(d: Drive) -> list[int]:
    return [len(node) for node in d.cache.tree.nodes()]


def right(d: Drive, *sequences: Sequence) -> bool:
    """Whether each said what it says alone."""
    said = [(d.outputs[one], one.generation.prompt) for one in sequences]
    return all(output and output == alone(prompt, len(output)) for output, prompt in said)


def known(d: Drive, prompt: list[int]) -> Node:
    """A prefix in the cache."""
    d.add(prompt, max_tokens=1)
    d.run()
    return d.node(prompt)


def put_out(d: Drive, *nodes: Node) -> None:
    """Prefixes leave the cache, and whatever is written is written."""
    for node in nodes:
        d.state.apply(Evict(node))
    d.run()


def written(d: Drive) -> list[int]:
    """The lengths of the files, the least recently used first."""
    return [len(file.record.tokens) for file in d.files.values()]


def answers(d: Drive, prompt: list[int], max_tokens: int = 2) -> int:
    """Asks, and gives how many tokens were known."""
    sequence = d.add(prompt, max_tokens=max_tokens)
    d.run()
    assert right(d, sequence)
    assert sequence.cached is not None
    return sequence.cached


def busy(d: Drive) -> None:
    """Somebody talks, so that nothing is written for safety."""
    d.add([250], max_tokens=200)
    d.step()


def silent(d: Drive) -> None:
    """Who talks leaves, and all is done that can be done then."""
    for sequence in list(d.state.running):
        d.cancel(sequence)
    d.run()


def beside(d: Drive, prompt: list[int]) -> Node:
    """A prefix in the cache, computed beside the one who talks."""
    sequence = d.add(prompt, max_tokens=1)
    while sequence not in d.ended:
        d.step()
    return d.node(prompt)


def push_out(d: Drive, *nodes: Node) -> None:
    for node in nodes:
        d.state.apply(Evict(node))
        d.step()


def refuse_none(d: Drive) -> None:
    d.refuses = lambda key: False
