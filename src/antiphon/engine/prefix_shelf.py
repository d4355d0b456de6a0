"""What is kept of prefixes outside of the KV cache: in memory and in files, each bounded, the least recently used going
first. Books only; files are read and written by who takes the transfers.

Memory that runs over goes to files, if there are any; files that run over are removed. Who takes a copy away is told
the nodes that held it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq

from msgspec import Struct

from antiphon.engine.backend import Parcel
from antiphon.engine.prefix_store import PathHash, Record, Unreadable
from antiphon.engine.prefix_tree import Copy, Node


class Kind(enum.Enum):
    READ = "read"
    WRITE = "write"
    REMOVE = "remove"


class Transfer(Struct, frozen=True):
    """Work for the store, in this order. Reads and writes are answered by `read_done` and `write_done`."""

    kind: Kind
    copy: Copy


class Shelf:
    """`ram` and `disk` in tokens. `disk` None: there are no files."""

    def __init__(self, *, ram: int = 0, disk: int | None = None) -> None:
        self.transfers: list[Transfer] = []
        self.in_ram = 0  # tokens, without those on their way to or from a file
        self.on_disk = 0
        self._ram = ram
        self._disk = disk
        self._copies: set[Copy] = set()
        self._fetched: list[Copy] = []
        self._unfilled: list[Copy] = []
        self._failing = False
        self._longest = disk or 0  # tokens of a file
        self._unmade: float = math.inf  # tokens of the shortest copy that there was no memory for, lately

    @property
    def busy(self) -> bool:
        """Whether anything is being read or written."""
        return any(copy.busy for copy in self._copies)

    @property
    def accepts(self) -> bool:
        """Whether another copy may be written for safety: one at a time, and none behind one that failed."""
        return self._disk is not None and not self._failing and not self.busy

    @property
    def full(self) -> bool:
        """Whether more is in memory than should be."""
        return self.in_ram > self._ram

    def has_room(self, length: int) -> bool:
        """Whether a copy of this length can be kept at all."""
        return length <= self._ram or (not self._failing and length <= self._longest)

    def has_place(self, node: Node) -> bool:
        """Whether the node can leave the cache for memory, without another copy having to go."""
        if node.copy is not None:
            return node.copy.parcel is not None
        return len(node) < self._unmade and self.in_ram + len(node) <= self._ram

    def choose(self, nodes: Iterable[tuple[Node, int]]) -> Node | None:
        """Of nodes and the lengths of their files the last used one whose file can be made, and would not be the next
        to be removed."""
        stored = sorted((copy for copy in self._copies if copy.stored), key=_last_use)
        room, longest = self._disk or 0, min(self._longest, self._unmade - 1)
        for node, length in sorted(nodes, key=lambda pair: pair[0].used, reverse=True):
            while stored and _last_use(stored[-1]) >= node.used:
                room -= len(stored.pop())
            if length <= min(room, longest):
                return node
        return None

    def unsaved(self) -> Iterator[Node]:
        """Nodes whose copies are in memory only."""
        return (node for copy in self._copies if copy.parcel is not None and not copy.stored for node in copy.nodes)

    # Copies come

    def put(self, node: Node, parcel: Parcel) -> Copy:
        """A copy of the node, in memory. Call `shrink` behind it."""
        copy = Copy(node.start, node.end, _record(node) if self._disk is not None else None)
        copy.parcel = parcel
        self._copies.add(copy)
        self._unfilled.append(copy)
        node.hold(copy)
        self._count(copy, True)
        return copy

    def take_in(self, node: Node | None, record: Record) -> None:
        """The node's copy is in a file that was there at the start; without a node, nobody needs it."""
        copy = Copy(record.start, record.start + len(record.tokens), record)
        self.on_disk += len(copy)
        if node is None:
            self._unstore(copy)
            return
        copy.stored = True
        self._copies.add(copy)
        node.hold(copy)

    def retry(self) -> None:
        """There is something new to write: disk and memory may have room again."""
        self._failing, self._unmade = False, math.inf

    def set_aside(self, tokens: int) -> None:
        """So much of the disk's room is taken by files that cannot be used."""
        assert self._disk is not None, "there are no files"
        self._disk = max(0, self._disk - tokens)
        self.bound(self._disk)

    def bound(self, longest: int) -> None:
        """No file can be of more tokens."""
        self._longest = min(self._longest, longest)

    # Copies go

    def let_go(self, node: Node) -> None:
        """The node needs its copy no longer; with the last node that held it the copy is gone."""
        copy, node.copy = node.copy, None
        if copy is None:
            return
        copy.nodes.remove(node)
        if not copy.nodes:
            self._count(copy, False)
            self._copies.remove(copy)
            copy.parcel = None
            if copy.stored:
                self._unstore(copy)

    def discard(self, copy: Copy) -> list[Node]:
        """The copy is no good, or there is no room for it. Gives the nodes that held it."""
        nodes = list(copy.nodes)
        for node in nodes:
            self.let_go(node)
        return nodes

    def discard_unfilled(self, booked: Seq[Parcel] = ()) -> list[Node]:
        """Copies that were to be made and were not, but for those whose parcels are still `booked`. Gives the nodes
        that held them."""
        unfilled = [copy for copy in self._unfilled if copy.parcel is not None and copy.parcel.data is None]
        self._unfilled = [copy for copy in unfilled if copy.parcel in booked]
        unmade = [copy for copy in unfilled if copy.parcel not in booked]
        self._unmade = min([self._unmade, *map(len, unmade)])
        return [node for copy in unmade for node in self.discard(copy)]

    def shrink(self) -> list[Node]:
        """Back under the bounds. Gives the nodes that lost their copy."""
        lost: list[Node] = []
        while self.in_ram > self._ram and (cold := self._coldest(in_ram=True)):
            lost += self._out_of_ram(cold)
        while self._disk is not None and self.on_disk > self._disk and (cold := self._coldest(in_ram=False)):
            lost += self._out_of_files(cold)
        return lost

    def _coldest(self, *, in_ram: bool) -> Copy | None:
        """The least recently used copy that nobody is just about to use."""
        copies = (copy for copy in self._copies if (copy.counted if in_ram else copy.stored and not copy.busy))
        return min((copy for copy in copies if not _awaited(copy)), key=_order_of_leaving, default=None)

    def _out_of_ram(self, copy: Copy) -> list[Node]:
        if copy.stored:
            self._count(copy, False)
            copy.parcel = None
        elif not self._failing and len(copy) <= self._longest:
            self.write(copy, leaving=True)
        else:
            return self.discard(copy)
        return []

    def _out_of_files(self, copy: Copy) -> list[Node]:
        self._unstore(copy)
        return [] if copy.counted else self.discard(copy)  # What was only fetched counts on its file.

    def _unstore(self, copy: Copy) -> None:
        copy.stored = False
        self.on_disk -= len(copy)
        self.transfers.append(Transfer(Kind.REMOVE, copy))

    def _count(self, copy: Copy, counted: bool) -> None:
        if copy.counted != counted:
            copy.counted = counted
            self.in_ram += len(copy) if counted else -len(copy)

    # Files

    def take_transfers(self, booked: Seq[Parcel]) -> list[Transfer]:
        """What can be done now: all but the writing of what is still to be saved."""
        taken = [transfer for transfer in self.transfers if transfer.copy.parcel not in booked]
        self.transfers = [transfer for transfer in self.transfers if transfer.copy.parcel in booked]
        return taken

    def write(self, copy: Copy, *, leaving: bool) -> None:
        """The copy is written; `leaving`: and gives its memory back then."""
        if leaving:
            copy.leaving = True
            self._count(copy, False)
        if not copy.busy:
            copy.busy = True
            self.transfers.append(Transfer(Kind.WRITE, copy))

    def write_done(self, copy: Copy, ok: bool) -> list[Node]:
        """Gives the nodes that lost their copy."""
        copy.busy = False
        leaving, copy.leaving = copy.leaving, False
        if not copy.nodes:
            if ok and not self._has_twin(copy):  # Written for nobody.
                self.transfers.append(Transfer(Kind.REMOVE, copy))
            return []
        if ok:
            copy.stored = True
            self.on_disk += len(copy)
            if leaving:
                copy.parcel = None
            return self.shrink()
        # What is too long says nothing about the disk.
        self._failing = self._failing or len(copy) <= self._longest
        return self.discard(copy) if leaving else []

    def _has_twin(self, copy: Copy) -> bool:
        """Whether a later copy is, or will be, in a file of the same name."""
        assert copy.record is not None
        return any(one.record is not None and one.record.key == copy.record.key for one in self._copies)

    def fetch(self, copies: Seq[Copy]) -> None:
        """These are needed next: the files of those that are not in memory are read. Earlier fetches are given up."""
        for copy in self._fetched:
            if copy not in copies:
                copy.parcel = None
        self._fetched = [copy for copy in self._fetched if copy in copies]
        for copy in dict.fromkeys(copies):
            if copy.parcel is None and not copy.busy:
                copy.busy = True
                self.transfers.append(Transfer(Kind.READ, copy))

    def read_done(self, copy: Copy, data: bytes | bytearray | Unreadable | None) -> list[Node]:
        """Gives the nodes that lost their copy, whose file was no good."""
        copy.busy = False
        if not copy.nodes:
            return []
        if isinstance(data, Unreadable):
            copy.unreadable = True
            return []
        if data is not None:
            copy.parcel = Parcel(data)
            self._fetched.append(copy)
            return []
        copy.stored = False  # The store has removed the file.
        self.on_disk -= len(copy)
        return self.discard(copy)

    def fetches_used(self) -> None:
        """What was fetched is in the cache now: it stays in memory where that has room, else its file is enough."""
        for copy in self._fetched:
            if copy.nodes and self.in_ram + len(copy) <= self._ram:
                self._count(copy, True)
            else:
                copy.parcel = None
        self._fetched.clear()


def _record(node: Node) -> Record:
    path = PathHash(node.owner)
    for above in node.path()[:-1]:
        path.extend(above.tokens)
    parent = path.key if node.start else b""
    key = path.extend(node.tokens).key
    return Record(owner=node.owner, tokens=tuple(node.tokens), start=node.start, parent=parent, key=key)


def _last_use(copy: Copy) -> int:
    return max(node.used for node in copy.nodes)


def _order_of_leaving(copy: Copy) -> tuple[int, int]:
    """Of those that were used together the end of a path first: it is of no use without its start."""
    return _last_use(copy), -copy.end


def _awaited(copy: Copy) -> bool:
    return any(node.users and not node.resident for node in copy.nodes)
