"""Vector clocks over the lanes of a window of two tokens: what each SM knows of the others, one join per hand-off.

An SM learns of other SMs only where its compute lane reads packets (a node), so a clock is kept per node: for every
lane of every SM the number of its tasks that are known to be done, counted over both tokens. Waits for free slots are
left out: fewer edges are the safe side for races.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from validator.columns import BODY, COMPUTE, Bools, Columns, Ints
from validator.handoffs import Handoffs, Nodes, unique_pairs
from validator.matching import Matching
from validator.progress import Order

Clock = npt.NDArray[np.int32]
TOKENS = 2


@dataclass(frozen=True, eq=False)
class Activity:
    """Which readers and writers take part in each token of the window, [2, n]."""

    readers: Bools
    writers: Bools


@dataclass(frozen=True, eq=False)
class Clocks:
    """`clock[token, row, sm * 3 + lane]`: tasks known to be done at a row; the last row knows nothing.

    `row_of_node[n]` is the row of the last node up to n (of its SM) that learns something; `first_row[sm]` the row
    of the SM at the start of a token, `last_row[sm]` the row at the end of the body.
    """

    clock: npt.NDArray[np.int32]
    row_of_node: Ints
    first_row: Ints
    last_row: Ints


def clocks(
    columns: Columns, hands: Handoffs, nodes: Nodes, matching: Matching, order: Order, joins: Bools, activity: Activity
) -> Clocks:
    """The clocks where only the groups of `joins` [2, groups] teach anything (in the token where they are read)."""
    waits = order.waits[np.any(joins, 0)[order.waits[:, 1]]]
    learns = np.zeros(len(nodes.task), bool)
    learns[waits[:, 0]] = True
    layout = _layout(columns, nodes, learns)
    clock = np.zeros((TOKENS, int(layout.first_row[-1]) + 1, columns.sms * 3), np.int32)
    steps = list(_steps(order, waits))
    for token in range(TOKENS):
        made = activity.writers[token]
        producers = _producers(columns, hands, nodes, matching, layout, made, joins[token])
        if token:
            clock[1, layout.first_row[:-1]] = clock[0, layout.end_row]
        for chosen in steps:
            _advance(clock[token], layout, chosen, joins[token], producers, columns, token)
    return Clocks(clock, layout.row_of_node, layout.first_row, layout.last_row)


@dataclass(frozen=True, eq=False)
class _Layout:
    row_of_node: Ints
    first_row: Ints
    end_row: Ints
    last_row: Ints


def _layout(columns: Columns, nodes: Nodes, learns: Bools) -> _Layout:
    """One row per SM for the start of a token and one per node that learns, SM by SM; then the row of no knowledge."""
    sm = columns.sm[nodes.task]
    per_sm = np.bincount(sm[learns], minlength=columns.sms)
    first = np.concatenate(([0], np.cumsum(per_sm + 1)))
    total = np.cumsum(learns)
    before = np.concatenate(([0], np.cumsum(per_sm)))
    row = first[sm] + total - before[sm]
    body = learns & (columns.section[nodes.task] == BODY)
    last = first[:-1] + np.bincount(sm[body], minlength=columns.sms)
    return _Layout(row, first, first[1:] - 1, last)


def _steps(order: Order, waits: Ints) -> Iterator[Ints]:
    """The waits (node, group) level by level."""
    level = order.level[waits[:, 0]]
    ranked = np.argsort(level, kind="stable")
    cuts = np.nonzero(np.diff(level[ranked]))[0] + 1
    for part in np.split(ranked, cuts):
        if len(part):
            yield waits[part]


@dataclass(frozen=True, eq=False)
class _Producers:
    """Per group, its producers' rows, and what it proves done by itself: (component, tasks)."""

    row_begin: Ints
    rows: Ints
    own_begin: Ints
    component: Ints
    done: Ints


def _producers(
    columns: Columns, hands: Handoffs, nodes: Nodes, matching: Matching, layout: _Layout, made: Bools, joins: Bools
) -> _Producers:
    links = hands.links[made[hands.links[:, 1]] & joins[hands.links[:, 0]]]
    group, writer = links[:, 0], links[:, 1]
    rows = unique_pairs(
        group, writer_rows(columns, hands, nodes, matching, layout.row_of_node, layout.first_row)[writer]
    )
    task = hands.writer_task[writer]
    sm = columns.sm[task]
    parts = [(sm * 3 + columns.lane[task], columns.index[task] + 1)]
    parts += [(sm * 3 + COMPUTE, matching.known_compute[task]), (sm * 3, matching.known_stream[task])]
    owner = np.tile(group, 3)
    component, done = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    ranked = np.lexsort((done, component, owner))
    owner, component, done = owner[ranked], component[ranked], done[ranked]
    last = np.ones(len(owner), bool)
    last[:-1] = (owner[1:] != owner[:-1]) | (component[1:] != component[:-1])
    owner, component, done = owner[last], component[last], done[last]
    return _Producers(_begins(rows[:, 0], hands.groups), rows[:, 1], _begins(owner, hands.groups), component, done)


def _begins(keys: Ints, size: int) -> Ints:
    return np.searchsorted(keys, np.arange(size + 1))


def writer_rows(
    columns: Columns, hands: Handoffs, nodes: Nodes, matching: Matching, row_of_node: Ints, first_row: Ints
) -> Ints:
    """The row of what each writer knows of other SMs: that of its last node; of the token's start if it has only
    local knowledge; of no knowledge if it does not even know its own compute lane.
    """
    sm = columns.sm[hands.writer_task]
    if not len(nodes.task):
        row = first_row[sm]
    else:
        row = np.where(nodes.of_writer >= 0, row_of_node[np.maximum(nodes.of_writer, 0)], first_row[sm])
    return np.where(matching.known_compute[hands.writer_task] > 0, row, first_row[-1])


def _advance(
    clock: Clock, layout: _Layout, waits: Ints, joins: Bools, producers: _Producers, columns: Columns, token: int
) -> None:
    """Joins the groups of one level into the rows of the nodes that wait for them."""
    row = layout.row_of_node[waits[:, 0]]
    fresh = np.unique(row)
    clock[fresh] = clock[fresh - 1]
    group = waits[:, 1]
    for number in np.unique(group[joins[group]]):
        learned = _join(clock, producers, int(number), columns, token)
        rows = row[group == number]
        clock[rows] = np.maximum(clock[rows], learned)


def _join(clock: Clock, producers: _Producers, group: int, columns: Columns, token: int) -> Clock:
    """What the arrival of all packets of a group proves done."""
    rows = producers.rows[producers.row_begin[group] : producers.row_begin[group + 1]]
    learned: Clock = clock[rows].max(0) if len(rows) else np.zeros(clock.shape[1], np.int32)
    own = slice(producers.own_begin[group], producers.own_begin[group + 1])
    component = producers.component[own]
    done = producers.done[own]
    shift = token * columns.length.reshape(-1)[component]
    learned[component] = np.maximum(learned[component], np.where(done > 0, done + shift, 0))
    return learned
