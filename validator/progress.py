"""Order of the hand-offs within a token (Kahn), or the cycle that prevents one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.columns import Bools, Ints
from validator.handoffs import Handoffs, Nodes, unique_pairs


@dataclass(frozen=True, eq=False)
class Order:
    """`level[n]` of each node: all that it waits for has lower levels; -1 where it waits for itself.

    `waits` are the pairs (node, group), `needs` the pairs (group, node of a producer).
    """

    level: Ints
    waits: Ints
    needs: Ints


def order(hands: Handoffs, nodes: Nodes, readers: Bools, writers: Bools) -> Order:
    """Topological levels where only these readers wait and only these writers produce."""
    waiting = readers & (nodes.of_reader >= 0) & ~hands.group_previous[hands.reader_group]
    waits = unique_pairs(nodes.of_reader[waiting], hands.reader_group[waiting])
    links = hands.links[writers[hands.links[:, 1]]]
    made = nodes.of_writer[links[:, 1]]
    needs = unique_pairs(links[made >= 0, 0], made[made >= 0])
    return Order(_levels(hands.groups, nodes, waits, needs), waits, needs)


def _levels(groups: int, nodes: Nodes, waits: Ints, needs: Ints) -> Ints:
    """Longest-path levels, one round per level: nodes, then the groups that they complete."""
    count = len(nodes.task)
    missing: Ints = np.bincount(needs[:, 0], minlength=groups)
    blocked = np.bincount(waits[:, 0], minlength=count) + (nodes.previous >= 0)
    producers = _csr(needs[:, 1], needs[:, 0], count)
    readers = _csr(waits[:, 1], waits[:, 0], groups)
    after = np.full(count + 1, -1, np.int64)
    after[nodes.previous] = np.where(nodes.previous >= 0, np.arange(count), -1)
    level: Ints = np.full(count, -1, np.int64)
    blocked -= np.bincount(_take(readers, np.nonzero(missing == 0)[0]), minlength=count)
    front = np.nonzero(blocked == 0)[0]
    now = 0
    while len(front):
        level[front] = now
        now += 1
        done, times = np.unique(_take(producers, front), return_counts=True)
        missing[done] -= times
        ready = np.concatenate([_take(readers, done[missing[done] == 0]), after[front]])
        touched, times = np.unique(ready[ready >= 0], return_counts=True)
        blocked[touched] -= times
        front = touched[blocked[touched] == 0]
    return level


def _csr(keys: Ints, values: Ints, size: int) -> tuple[Ints, Ints]:
    """`values` sorted by key, and where each key begins."""
    begin = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=size), out=begin[1:])
    return begin, values[np.argsort(keys, kind="stable")]


def _take(csr: tuple[Ints, Ints], keys: Ints) -> Ints:
    """All values of these keys."""
    begin, values = csr
    count = begin[keys + 1] - begin[keys]
    if not len(keys):
        return values[:0]
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    taken: Ints = values[np.repeat(begin[keys], count) + within]
    return taken


def cycle(order_: Order, nodes: Nodes) -> list[tuple[int, int]]:
    """A cycle as (node, group by which it waits for the next node of the list; -1: lane order)."""
    stuck = order_.level < 0
    node = int(np.nonzero(stuck)[0][0])
    path: list[tuple[int, int]] = []
    seen: dict[int, int] = {}
    while node not in seen:
        seen[node] = len(path)
        group, after = _blocker(order_, nodes, stuck, node)
        path.append((node, group))
        node = after
    return path[seen[node] :]


def _blocker(order_: Order, nodes: Nodes, stuck: Bools, node: int) -> tuple[int, int]:
    """(group or -1, a stuck node that `node` waits for)."""
    begin, end = np.searchsorted(order_.waits[:, 0], [node, node + 1])
    for group in order_.waits[begin:end, 1]:
        low, high = np.searchsorted(order_.needs[:, 0], [group, group + 1])
        makers = order_.needs[low:high, 1]
        if stuck[makers].any():
            return int(group), int(makers[stuck[makers]][0])
    return -1, int(nodes.previous[node])
