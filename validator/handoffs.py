"""Packet hand-offs: which tasks write what each group of readers waits for.

Packet addresses are cut at every boundary of an access into segments; (segment, phase) is a cell, one value per token.
Readers of the same range and phase under the same condition form a group: its producers are looked up once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.activity import UnmodelledError
from validator.columns import BODY, COMPUTE, Bools, Columns, Ints
from validator.footprints import Footprints
from validator.matching import Matching

MAX_CELLS = 20_000_000


@dataclass(frozen=True, eq=False)
class Handoffs:
    """Writers w (task, cells), reader groups g (range, cells) and readers r (task, group).

    `writer_cell`/`group_cell` are [pairs, 2]: (writer or group, cell). Cells are sorted by (segment, phase);
    `cell_start` and `cell_phase` say where they lie. `links` are the pairs (group, writer) that share a cell.
    """

    phases: int
    patterns: Bools
    writer_task: Ints
    writer_pattern: Ints
    writer_cell: Ints
    group_start: Ints
    group_length: Ints
    group_phase: Ints
    group_pattern: Ints
    group_previous: Bools
    group_section: Ints
    group_cell: Ints
    reader_task: Ints
    reader_group: Ints
    cell_start: Ints
    cell_length: Ints
    cell_phase: Ints
    cell_segment: Ints
    links: Ints

    @property
    def groups(self) -> int:
        """How many groups of readers there are."""
        return len(self.group_start)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.cell_start)


def handoffs(columns: Columns, packets: Footprints) -> Handoffs:
    """The hand-offs of the accesses to packets. Raises UnmodelledError where there are too many to check."""
    phases = columns.config["phases"]
    writes, reads = packets.select(packets.write), packets.select(~packets.write)
    section = columns.section[reads.task]
    keys = np.stack([reads.start, reads.length, reads.phase, reads.pattern, reads.previous, section], 1)
    groups, reader_group = _unique_rows(keys)
    edges = np.unique(
        np.concatenate([writes.start, writes.start + writes.length, groups[:, 0], groups[:, 0] + groups[:, 1]])
    )
    writer_cell = _expand(edges, writes.start, writes.length, writes.phase, phases)
    group_cell = _expand(edges, groups[:, 0], groups[:, 1], groups[:, 2], phases)
    cells = np.unique(np.concatenate([writer_cell[:, 1], group_cell[:, 1]]))
    for pairs in (writer_cell, group_cell):
        pairs[:, 1] = np.searchsorted(cells, pairs[:, 1])
    segment, phase = np.divmod(cells, phases)
    sizes = np.diff(edges, append=edges[-1:])
    return Handoffs(
        phases, packets.patterns, writes.task, writes.pattern, writer_cell,
        groups[:, 0], groups[:, 1], groups[:, 2], groups[:, 3], groups[:, 4].astype(bool), groups[:, 5], group_cell,
        reads.task, reader_group, edges[segment], sizes[segment], phase, segment, _links(group_cell, writer_cell),
    )  # fmt: skip


def _unique_rows(keys: Ints) -> tuple[Ints, Ints]:
    """The different rows and, for each row, which of them it is."""
    order = np.lexsort(keys.T[::-1])
    ranked = keys[order]
    new = np.ones(len(keys), bool)
    new[1:] = (ranked[1:] != ranked[:-1]).any(1)
    number = np.empty(len(keys), np.int64)
    number[order] = np.cumsum(new) - 1
    return ranked[new], number


def _expand(edges: Ints, start: Ints, length: Ints, phase: Ints, phases: int) -> Ints:
    """Pairs (owner, segment * phases + phase) of ranges."""
    first = np.searchsorted(edges, start)
    count = np.searchsorted(edges, start + length) - first
    total = int(count.sum())
    if total > MAX_CELLS:
        raise UnmodelledError(
            f"packet accesses fall into {total} pieces, more than the {MAX_CELLS} that can be checked"
        )
    owner = np.repeat(np.arange(len(start)), count)
    within = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    return np.stack([owner, (first[owner] + within) * phases + phase[owner]], 1)


def join(left: Ints, right: Ints, size: int) -> tuple[Ints, Ints]:
    """Row numbers (i, j) of all pairs with left[i, 1] == right[j, 1]; keys are below `size`."""
    order = np.argsort(right[:, 1], kind="stable")
    count = np.bincount(right[:, 1], minlength=size)
    begin = np.cumsum(count) - count
    repeat = count[left[:, 1]]
    if int(repeat.sum()) > MAX_CELLS:
        raise UnmodelledError(
            f"{int(repeat.sum())} pairs of packet accesses meet, more than the {MAX_CELLS} that can be checked"
        )
    i = np.repeat(np.arange(len(left)), repeat)
    within = np.arange(len(i)) - np.repeat(np.cumsum(repeat) - repeat, repeat)
    return i, order[begin[left[i, 1]] + within]


def _links(group_cell: Ints, writer_cell: Ints) -> Ints:
    size = 1 + max(group_cell[:, 1].max(initial=-1), writer_cell[:, 1].max(initial=-1))
    i, j = join(group_cell, writer_cell, int(size))
    return unique_pairs(group_cell[i, 0], writer_cell[j, 0])


def unique_pairs(a: Ints, b: Ints) -> Ints:
    """The different pairs (a, b) of non-negative numbers, sorted."""
    span = int(b.max(initial=0)) + 1
    return np.stack(np.divmod(np.unique(a * span + b), span), 1)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Where an SM learns something from other SMs: the tasks of compute lanes that read packets, in lane order.

    `of_writer[w]` is the last node before writer w (or its own, where it reads too), -1 for none.
    """

    task: Ints
    previous: Ints
    of_writer: Ints
    of_reader: Ints


def nodes(columns: Columns, hands: Handoffs, matching: Matching) -> Nodes:
    """The nodes, and the node of every writer and reader (-1 for readers on other lanes)."""
    in_compute = columns.lane[hands.reader_task] == COMPUTE
    task = np.unique(hands.reader_task[in_compute])
    previous = np.arange(len(task)) - 1
    same = np.zeros(len(task), bool)
    same[1:] = columns.sm[task[1:]] == columns.sm[task[:-1]]
    of_reader = np.where(in_compute, np.searchsorted(task, hands.reader_task), -1)
    writers = hands.writer_task
    return Nodes(task, np.where(same, previous, -1), last_node(columns, matching, task, writers), of_reader)


def last_node(columns: Columns, matching: Matching, task: Ints, writers: Ints) -> Ints:
    """The last of the compute tasks `task` that is done before each writer writes; -1 for none."""
    begin = columns.lane_begin[columns.sm[writers], COMPUTE]
    at = np.searchsorted(task, begin + matching.known_compute[writers]) - 1
    found = (at >= 0) & (columns.sm[task[np.maximum(at, 0)]] == columns.sm[writers]) if len(task) else at >= 0
    return np.where(found, at, -1)


def body_only(columns: Columns, hands: Handoffs) -> Bools:
    """Groups whose every producer runs in every token and at every position."""
    certain = (columns.section[hands.writer_task] == BODY) & (hands.writer_pattern == 0)
    good = np.ones(hands.groups, bool)
    good[hands.links[~certain[hands.links[:, 1]], 0]] = False
    return good
