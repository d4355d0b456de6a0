"""Computed prefixes as a radix tree: each node is a run of tokens, each path from a root the start of a prompt.

Plain data: who holds a node's cells and who decides is written elsewhere (`prefix_cache`, `scheduler`).

Rules
* Siblings differ in their first token, so a prompt has one path.
* The deepest node of a path keeps its identity when it is split or merged: who points at it still points at the end of
  the same path.
* Roots belong to owners: two owners never meet in a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.engine.backend import Parcel
from antiphon.engine.prefix_store import Record


class Copy:
    """The state of a run of positions outside of the cache: in memory (`parcel`), in a file (`stored`), or both.

    The nodes that were cut out of that run share it. `busy`: it is being read or written. `leaving`: its memory is
    given back as soon as it is written. `counted`: it counts as memory in use. `unreadable`: its file could not be read
    when it was wanted, and is of no use until the tokens were computed again.
    """

    __slots__ = ("busy", "counted", "end", "leaving", "nodes", "parcel", "record", "start", "stored", "unreadable")

    def __init__(self, start: int, end: int, record: Record | None = None) -> None:
        self.start = start
        self.end = end
        self.record = record
        self.parcel: Parcel | None = None
        self.stored = False
        self.busy = False
        self.leaving = False
        self.counted = False
        self.unreadable = False
        self.nodes: list[Node] = []

    def __len__(self) -> int:
        return self.end - self.start


class Node:
    """`tokens` at positions `start`, `start` + 1, ... of every sequence whose path goes through it.

    `slot` is the backend's slot that holds exactly these positions, -1 if they are not in the cache. `users` counts the
    running sequences whose path goes through it.
    """

    __slots__ = ("children", "copy", "owner", "parent", "slot", "start", "tokens", "used", "users")

    def __init__(self, owner: str, tokens: list[int], start: int = 0, parent: Node | None = None) -> None:
        self.owner = owner
        self.tokens = tokens
        self.start = start
        self.parent = parent
        self.children: dict[int, Node] = {}
        self.slot = -1
        self.users = 0
        self.used = 0
        self.copy: Copy | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def __bool__(self) -> bool:
        return True  # A root has no tokens, and is a node.

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    @property
    def resident(self) -> bool:
        """Whether its cells are in the cache."""
        return self.slot >= 0

    def hold(self, copy: Copy) -> None:
        self.copy = copy
        copy.nodes.append(self)

    def path(self) -> list[Node]:
        """The nodes from below the root to this one."""
        nodes: list[Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def subtree(self) -> Iterator[Node]:
        """This node and everything below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()


class Tree:
    """The roots of all owners."""

    def __init__(self) -> None:
        self._roots: dict[str, Node] = {}

    def root(self, owner: str) -> Node:
        """The owner's root, made if it is new."""
        return self._roots.setdefault(owner, Node(owner, []))

    def match(self, owner: str, tokens: Sequence[int], limit: int) -> tuple[Node, int]:
        """The deepest node that begins like `tokens[:limit]`, and how many tokens are equal: the node's `end`, or less
        if only a part of it is. The owner must have a root."""
        node, length = self._roots[owner], 0
        while node.end == length < limit and (child := node.children.get(tokens[length])):
            node, length = child, length + common_prefix(child.tokens, tokens, length, limit)
        return node, length

    def nodes(self) -> Iterator[Node]:
        """All but the roots, parents first."""
        for root in self._roots.values():
            for child in root.children.values():
                yield from child.subtree()


def add_child(parent: Node, tokens: list[int]) -> Node:
    node = Node(parent.owner, tokens, parent.end, parent)
    parent.children[tokens[0]] = node
    return node


def split(node: Node, count: int) -> Node:
    """Cuts off the first `count` tokens into a new node above, which is returned. `node` keeps its end and children."""
    assert node.parent is not None and 0 < count < len(node.tokens)
    upper = add_child(node.parent, node.tokens[:count])
    upper.users, upper.used = node.users, node.used
    node.tokens = node.tokens[count:]
    node.start += count
    node.parent = upper
    upper.children[node.tokens[0]] = node
    if node.copy is not None:
        upper.hold(node.copy)
    return upper


def merge(node: Node) -> None:
    """Takes the parent's tokens into `node`, whose only child it is."""
    upper = node.parent
    assert upper is not None and upper.parent is not None and len(upper.children) == 1
    node.tokens = upper.tokens + node.tokens
    node.start = upper.start
    node.parent = upper.parent
    node.parent.children[node.tokens[0]] = node


def remove(node: Node) -> None:
    """Takes a node and what is below it out of the tree."""
    assert node.parent is not None
    del node.parent.children[node.tokens[0]]


def graft(parent: Node, tokens: list[int]) -> Node | None:
    """A new node at the end of the path `tokens` below `parent`, cut where paths branch; None: all of it is known."""
    node, length = parent, 0
    while length < len(tokens) and (child := node.children.get(tokens[length])):
        common = common_prefix(child.tokens, tokens, length, len(tokens))
        node = child if common == len(child) else split(child, common)
        length += common
    return add_child(node, tokens[length:]) if length < len(tokens) else None


def common_prefix(tokens: Sequence[int], others: Sequence[int], offset: int, limit: int) -> int:
    """How many leading `tokens` are equal to `others[offset:limit]`, by halving: slices compare in C."""
    low, high = 0, min(len(tokens), limit - offset)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens[low:middle] == others[offset + low : offset + middle]:
            low = middle
        else:
            high = middle - 1
    return low
