"""The radix tree alone: its cuts, its joints, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.prefix_tree import Copy, Node, Tree, add_child, common_prefix, graft, merge, remove, split

Paths = list[list[int]]

paths = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=12)


def tree_of(*prompts: list[int], owner: str = "") -> Tree:
    tree = Tree()
    for prompt in prompts:
        graft(tree.root(owner), prompt)
    return tree


def shape(node: Node) -> list[object]:
    """A tree as nested lists: a node's tokens, then its children in the order of their tokens."""
    return [node.tokens, *(shape(child) for _, child in sorted(node.children.items()))]


def length_of(tokens: Sequence[int], others: Sequence[int]) -> int:
    length = 0
    while length < min(len(tokens), len(others)) and tokens[length] == others[length]:
        length += 1
    return length


def test_an_owner_has_one_root_and_nobody_else_has_it() -> None:
    tree = Tree()
    assert tree.root("a") is tree.root("a")
    assert tree.root("a") is not tree.root("b")
    assert tree.root("a").path() == []
    assert list(tree.nodes()) == []


def test_a_root_without_tokens_is_still_true() -> None:
    assert Tree().root("")
    assert len(Tree().root("")) == 0


def test_paths_are_cut_where_they_branch() -> None:
    tree = tree_of([1, 2, 3, 4], [1, 2, 3, 5, 6], [1, 2], [7])
    expected = [[], [[1, 2], [[3], [[4]], [[5, 6]]]], [[7]]]
    assert shape(tree.root("")) == expected


@pytest.mark.parametrize("tokens", [[1, 2, 3], [1, 2], [1]])
def test_what_is_known_is_not_grafted_again(tokens: list[int]) -> None:
    assert graft(tree_of([1, 2, 3]).root(""), tokens) is None


def test_the_end_of_a_path_keeps_its_node_when_it_is_cut() -> None:
    tree = tree_of([1, 2, 3, 4])
    node, _ = tree.match("", [1, 2, 3, 4], 4)
    child = add_child(node, [5])
    node.users, node.used = 2, 9
    upper = split(node, 3)
    assert (upper.tokens, upper.start, upper.end) == ([1, 2, 3], 0, 3)
    assert (node.tokens, node.start, node.end) == ([4], 3, 4)
    assert (upper.users, upper.used) == (node.users, node.used) == (2, 9)
    assert child.path() == [upper, node, child]
    assert upper.children == {4: node}
    assert tree.root("").children == {1: upper}


def test_both_halves_hold_the_copy_of_the_whole() -> None:
    node = add_child(Tree().root(""), [1, 2, 3])
    copy = Copy(0, 3)
    node.hold(copy)
    upper = split(node, 1)
    assert upper.copy is node.copy is copy
    assert copy.nodes == [node, upper]
    assert len(copy) == 3


def test_merging_is_the_opposite_of_splitting() -> None:
    tree = tree_of([1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 6])
    node, _ = tree.match("", [1, 2, 3, 4], 4)
    before = shape(tree.root(""))
    split(node, 2)
    merge(node)
    assert shape(tree.root("")) == before
    assert (node.start, node.end, node.parent) == (0, 4, tree.root(""))


def test_removing_takes_what_is_below_with_it() -> None:
    tree = tree_of([1, 2, 3], [1, 2, 4], [5])
    node, _ = tree.match("", [1, 2], 2)
    assert [len(one.tokens) for one in node.subtree()] == [2, 1, 1]
    remove(node)
    assert shape(tree.root("")) == [[], [[5]]]
    assert tree.match("", [1, 2], 2) == (tree.root(""), 0)


def test_parents_come_before_their_children() -> None:
    tree = tree_of([1, 2, 3], [1, 2, 4], [1, 2, 4, 5], [6], owner="a")
    graft(tree.root("b"), [1])
    seen: set[Node] = {tree.root("a"), tree.root("b")}
    for node in tree.nodes():
        assert node.parent in seen
        seen.add(node)
    assert len(seen) == 2 + 6


@given(paths, st.lists(st.integers(0, 2), max_size=9), st.integers(0, 9))
def test_the_longest_known_prefix_is_found(prompts: Paths, tokens: list[int], limit: int) -> None:
    tree = tree_of(*prompts)
    tree.root("")
    limit = min(limit, len(tokens))
    node, length = tree.match("", tokens, limit)
    assert length == max((length_of(tokens[:limit], prompt) for prompt in prompts), default=0)
    path = [token for one in node.path() for token in one.tokens]
    assert path[:length] == tokens[:length]
    assert node.start < length <= node.end or (node.parent is None and not length)


@given(paths)
def test_the_order_of_arrival_does_not_matter(prompts: Paths) -> None:
    """Up to cuts at the ends of prompts that came before the longer ones."""
    ends = {tuple(prompt) for prompt in prompts}
    tree = tree_of(*prompts)
    for node in tree.nodes():
        whole = tuple(token for one in node.path() for token in one.tokens)
        assert node.parent is not None and node.parent.children[node.tokens[0]] is node
        assert len(node.children) > 1 or whole in ends
    assert sum(len(node) for node in tree.nodes()) == len({end[:n] for end in ends for n in range(1, len(end) + 1)})


@given(st.lists(st.integers(0, 1)), st.lists(st.integers(0, 1)), st.integers(0, 5), st.integers(0, 20))
def test_the_common_prefix(tokens: list[int], others: list[int], offset: int, limit: int) -> None:
    offset, limit = min(offset, len(others)), min(limit, len(others))
    expected = length_of(tokens, others[offset : max(limit, offset)])
    assert common_prefix(tokens, others, offset, max(limit, offset)) == expected


def test_a_limit_before_the_offset_is_nothing_in_common() -> None:
    assert common_prefix([1], [1, 1, 1], 2, 1) == 0
