"""Where the nodes of the prefix tree are: in the KV cache, in memory, in files; and the moves that bring them there.

Books only: each change here is a move or a transfer that somebody else carries out, in their order.

Rules
* The nodes above a node in the cache are in the cache: eviction goes from the leaves.
* A cell belongs to one node or to one running sequence. A node that a running sequence uses stays.
* A node that is nowhere any more is taken out of the tree, with everything below it.
* Everything is counted in tokens: a cell each in the cache, `cell_bytes` each outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from collections.abc import Sequence as Seq

from antiphon.engine.backend import Move, Parcel, Restore, Save, Share, Trim
from antiphon.engine.prefix_shelf import Shelf, Transfer
from antiphon.engine.prefix_store import Record, Unreadable
from antiphon.engine.prefix_tree import Copy, Node, Tree, add_child, common_prefix, graft, merge, remove, split

IDLE_TOKENS = 64
"""Tokens computed for others, with those of the next step, after which an unused prefix leaves the cache for memory
that is free. Every token that is computed steps over the cells of all: 0.3 us a cell for a small model on two CPU
cores, while a cell is saved and brought back in 5 us."""


class PrefixCache:
    """`slots` are the backend's slots for nodes."""

    def __init__(self, slots: Iterable[int], shelf: Shelf | None = None) -> None:
        self.tree = Tree()
        self.shelf = shelf or Shelf()
        self.moves: list[Move] = []
        self.resident = 0  # tokens in the cache, of all nodes
        self.restored = 0  # tokens so far
        self._slots = tuple(slots)
        self._free_slots = deque(self._slots)
        self._nodes: dict[int, Node] = {}  # by slot
        self._origins: dict[int, Copy] = {}  # by slot, what was last restored into it
        self._clock = 0

    def adopt(self, records: Seq[Record]) -> None:
        """What an earlier process left in files, the least recently used first. What is there twice is removed."""
        self._clock = len(records)
        ends: dict[bytes, Node] = {}
        for used, record in sorted(enumerate(records), key=lambda pair: (pair[1].start, len(pair[1].tokens))):
            parent = ends.get(record.parent) if record.start else self.tree.root(record.owner)
            node = graft(parent, list(record.tokens)) if parent is not None else None
            self.shelf.take_in(node, record)
            if node is not None:
                ends[record.key] = node
                for one in node.path():
                    one.used = max(one.used, used)
        self._forget(self.shelf.shrink())

    # What is there

    def cold(self, apart: Seq[Node] = ()) -> int:
        """Tokens in the cache that nobody uses, those of `apart` not counted."""
        return sum(len(node) for node in self._nodes.values() if not node.users and node not in apart)

    def coldest(self, apart: Seq[Node] = ()) -> Node | None:
        """The least recently used node that can be evicted."""
        leaves = (node for node in self._nodes.values() if _evictable(node) and node not in apart)
        return min(leaves, key=_last_use, default=None)

    def idle(self, coming: int) -> Node | None:
        """The least recently used of the nodes that are better off outside of the cache, with so many tokens to be
        computed next, and can leave without taking anybody's place."""
        since = self._clock + coming - IDLE_TOKENS
        idle = (node for node in self._nodes.values() if node.used < since and _evictable(node))
        return min(filter(self.shelf.has_place, idle), key=_last_use, default=None)

    def unsaved(self) -> Node | None:
        """The node that should be written next, the last used first; parents first, or the file would be an orphan.
        What is too long for a file, or for the room there, is passed over."""
        if not self.shelf.accepts:
            return None
        inside = (node for node in self._nodes.values() if _unsaved(node))
        outside = (node for node in self.shelf.unsaved() if _unsaved(node))
        return self.shelf.choose((node, _file_length(node)) for node in (*inside, *outside))

    def passed(self, tokens: int) -> None:
        """So many tokens were computed, of whomever."""
        self._clock += tokens

    # A sequence comes and goes

    def use(self, leaf: Node, length: int, lane: int) -> Node:
        """Gives a lane the first `length` tokens of the path to `leaf`, which come back into the cache if need be.

        Returns the last node that is used: less than was asked for if there is no slot for it.
        """
        self._pin(leaf.path(), 1)
        self._reserve(1 + sum(not node.resident for node in leaf.path()))
        usable = self._resident_part(leaf)
        self.shelf.fetches_used()
        if usable is leaf and length < leaf.end:
            usable = self._split(leaf, length - leaf.start) or leaf.parent or leaf
        kept = usable.path()
        self._pin([node for node in leaf.path() if node not in kept], -1)
        self.moves += [Share(node.slot, lane, node.start, node.end) for node in kept]
        return usable

    def insert(self, leaf: Node, tokens: list[int], end: int, lane: int, *, keep: bool) -> Node:
        """Makes a lane's positions behind `leaf`, up to `end`, nodes of the tree; gives the last node.

        `keep`: the lane goes on, on the cells of the tree; where they are there twice, its own are given up.
        Without a free slot, less is inserted. The new nodes are used as `leaf` is.
        """
        node = leaf
        while node.end < end and self._reserve(1):
            child = node.children.get(tokens[node.end])
            if child is None:
                self.shelf.retry()
                child = add_child(node, tokens[node.end : end])
                self._take_over(child, lane)
            else:
                child = self._overlap(child, tokens, end, lane, keep=keep)
            self._pin([child], 1)
            node = child
        return node

    def release(self, leaf: Node) -> None:
        """A sequence does not use the path any more."""
        self._pin(leaf.path(), -1)

    def distrust(self, leaf: Node) -> None:
        """What the path holds may be wrong: the part of it that nobody uses is thrown away, with all that follows."""
        suspect = next((node for node in leaf.path() if not node.users), None)
        for node in suspect.subtree() if suspect is not None else ():
            if node.resident:
                self._vacate(node)
        if suspect is not None:
            self._forget([suspect])

    def _pin(self, nodes: Seq[Node], count: int) -> None:
        self._clock += 1
        for node in nodes:
            node.users += count
            node.used = self._clock

    def _resident_part(self, leaf: Node) -> Node:
        """The deepest node of the path that is in the cache, after all were brought there that could be."""
        for node in leaf.path():
            if not node.resident and not self._restore(node):
                return node.parent or node
        return leaf

    def _overlap(self, child: Node, tokens: list[int], end: int, lane: int, *, keep: bool) -> Node:
        """The part of a known child that the lane has computed too. Needs a slot."""
        common = common_prefix(child.tokens, tokens, child.start, end)
        upper = child if common == len(child) else self._split(child, common)
        assert upper is not None
        if not upper.resident:
            self._take_over(upper, lane)
        elif keep:
            self.moves.append(Share(upper.slot, lane, upper.start, upper.end))
        return upper

    def _take_over(self, node: Node, lane: int) -> None:
        """The lane's cells become the node's."""
        if node.copy is not None:
            node.copy.unreadable = False
        self._occupy(node)
        self.moves.append(Share(lane, node.slot, node.start, node.end))

    # Slots

    def _occupy(self, node: Node) -> None:
        node.slot = self._free_slots.popleft()
        self._nodes[node.slot] = node
        self.resident += len(node)

    def _vacate(self, node: Node) -> None:
        self.moves.append(Trim(node.slot, 0))
        self._free_slots.append(node.slot)
        del self._nodes[node.slot]
        node.slot = -1
        self.resident -= len(node)

    def _reserve(self, count: int) -> bool:
        """Sees that so many slots are free: two nodes become one, or the coldest leaves the cache. False: too few."""
        while len(self._free_slots) < min(count, len(self._slots)):
            joint = next((node for node in self._nodes.values() if _mergeable(node)), None)
            coldest = self.coldest()
            if joint is not None:
                self._merge(joint)
            elif coldest is not None:
                self.evict(coldest)
            else:
                break
        return len(self._free_slots) >= count

    def _split(self, node: Node, count: int) -> Node | None:
        """See `split`. In the cache each half needs a slot; None if there is none."""
        if not node.resident:
            return split(node, count)
        if not self._free_slots:
            return None
        slot = self._free_slots.popleft()
        upper = split(node, count)
        self.moves += [Share(node.slot, slot, node.start, node.end), Trim(node.slot, upper.end)]
        upper.slot, node.slot = node.slot, slot
        self._nodes[upper.slot], self._nodes[slot] = upper, node
        return upper

    def _merge(self, node: Node) -> None:
        upper = node.parent
        assert upper is not None
        if node.copy is not None and node.copy.start > upper.start:  # One that holds both stays.
            self.shelf.let_go(node)
        self.shelf.let_go(upper)
        self.moves.append(Share(upper.slot, node.slot, upper.start, upper.end))
        merge(node)
        self.resident += len(upper)  # `_vacate` takes it off: it has only changed its slot.
        self._vacate(upper)

    # Between the cache and outside

    def evict(self, node: Node) -> None:
        """A cold leaf leaves the cache, to memory or a file if there is room for it."""
        assert _evictable(node)
        if node.copy is None and self.shelf.has_room(len(node)):
            self._save(node)
        self._vacate(node)
        self._forget([node] if node.copy is None else self.shelf.shrink())

    def persist(self, node: Node) -> None:
        """The node is written to a file as well, one that ends where the node does."""
        if node.copy is not None and (node.copy.end > node.end or _doubled(node)):
            self.shelf.let_go(node)
        copy = node.copy or self._save(node)
        # What is in the cache needs memory for leaving it later, if there is any.
        self.shelf.write(copy, leaving=node.resident and self.shelf.full)

    def fetch(self, leaf: Node) -> None:
        """Files that the path needs are read."""
        self._pin(leaf.path(), 0)
        self.shelf.fetch([node.copy for node in leaf.path() if not node.resident and node.copy is not None])

    def lost(self) -> None:
        """The KV cache is empty, and nothing that was to be done in it was done. Nobody uses a node."""
        self.moves.clear()
        self._free_slots = deque(self._slots)
        for node in self.tree.nodes():
            node.users, node.slot = 0, -1
        self._nodes.clear()
        self.resident = 0
        self.shelf.discard_unfilled()
        self._forget([node for node in self.tree.nodes() if node.copy is None])

    def spoiled(self, slot: int) -> None:
        """What was restored into this slot cannot be restored: it is kept no longer. Its node may have left the slot
        already. Call `lost` behind it."""
        copy = self._origins.get(slot)
        if copy is not None:
            self.shelf.discard(copy)

    def transfers(self) -> list[Transfer]:
        """What can be read, written and removed, now that the moves were carried out that are booked no longer. Which
        prefixes there was no memory for shows here: those are kept nowhere."""
        booked = [move.parcel for move in self.moves if isinstance(move, Save)]
        self._forget(self.shelf.discard_unfilled(booked))
        return self.shelf.take_transfers(booked)

    def read_done(self, copy: Copy, data: bytes | bytearray | Unreadable | None) -> None:
        self._forget(self.shelf.read_done(copy, data))

    def write_done(self, copy: Copy, ok: bool) -> None:
        self._forget(self.shelf.write_done(copy, ok))

    def _save(self, node: Node) -> Copy:
        # A file is named for where it ends: of two copies that end together, one would take the other's place.
        for above in node.path()[:-1]:
            if above.copy is not None and above.copy.end == node.end:
                self.shelf.let_go(above)
        parcel = Parcel()
        self.moves.append(Save(node.slot, parcel))
        return self.shelf.put(node, parcel)

    def _restore(self, node: Node) -> bool:
        # Making room may have taken the node's own copy: memory is bounded.
        if not self._free_slots or node.copy is None or node.copy.parcel is None:
            return False
        self._occupy(node)
        self._origins[node.slot] = node.copy
        self.moves.append(Restore(node.slot, node.copy.parcel, node.start, node.end))
        self.restored += len(node)
        return True

    def _forget(self, nodes: Seq[Node]) -> None:
        """Takes nodes that are kept nowhere out of the tree."""
        for node in nodes:
            if not node.resident and _attached(node):
                for below in node.subtree():
                    self.shelf.let_go(below)
                remove(node)


def _evictable(node: Node) -> bool:
    return not node.users and not any(child.resident for child in node.children.values())


def _last_use(node: Node) -> int:
    return node.used


def _unsaved(node: Node) -> bool:
    """Whether the node has no file that ends where it does, and can be given one that is no orphan."""
    copy, start, above = node.copy, node.start, node.parent
    assert above is not None, "a root has nothing to save"
    if _stored(node):
        return _doubled(node)
    if copy is not None:
        if copy.end > node.end and not node.resident:
            return False  # A copy that goes on behind the node can only be replaced from the cache.
        start = copy.start if copy.end == node.end else start
    while above.parent is not None and above.end > start:
        above = above.parent
    return above.end == start and (above.parent is None or _stored(above))


def _file_length(node: Node) -> int:
    """Tokens of the file that `persist` makes of an unsaved node."""
    copy = node.copy
    return len(node) if copy is None or copy.end > node.end or _doubled(node) else len(copy)


def _stored(node: Node) -> bool:
    """Whether a file ends where the node does, so that another one can go on from there."""
    return node.copy is not None and node.copy.stored and node.copy.end == node.end


def _doubled(node: Node) -> bool:
    """Whether the node's copy holds what is in its parent's file too, and can be made anew without it: else each cut
    of a prefix would be another file of all that is before it."""
    copy, above = node.copy, node.parent
    return node.resident and copy is not None and copy.start < node.start and above is not None and _stored(above)


def _mergeable(node: Node) -> bool:
    """Whether nothing is lost if a node and its parent become one."""
    upper = node.parent
    if upper is None or upper.parent is None or len(upper.children) > 1 or upper.users != node.users:
        return False
    return not any(one.copy is not None and one.copy.busy for one in (upper, node))


def _attached(node: Node) -> bool:
    """Whether the node is still in the tree."""
    while node.parent is not None:
        if node.parent.children.get(node.tokens[0]) is not node:
            return False
        node = node.parent
    return True
