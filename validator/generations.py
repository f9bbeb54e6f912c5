"""Which write comes next on each packet: pairs of accesses that happens-before must order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.clocks import Activity
from validator.columns import Bools, Ints
from validator.handoffs import Handoffs, join


@dataclass(frozen=True, eq=False)
class Pairs:
    """Earlier access `before` (a group of readers, or a writer, of token 0), next writer `after` (of token `token`)."""

    before: Ints
    after: Ints
    token: Ints


def next_cells(hands: Handoffs, written: Bools) -> tuple[Ints, Ints]:
    """For every cell the next written cell of its segment and in how many tokens it comes (-1: never).

    `written` is [2, cells]: of the token itself and of the one after it. Values of a segment follow their phases.
    """
    here, later = (np.nonzero(row)[0] for row in written)
    cells = np.arange(hands.cells)
    segment = hands.cell_segment
    same = _first_from(here, cells + 1, segment, segment)
    begin = np.searchsorted(segment, segment)
    other = _first_from(later, begin, segment, segment)
    token = np.where(same >= 0, 0, np.where(other >= 0, 1, -1))
    return np.where(same >= 0, same, other), token


def _first_from(candidates: Ints, begin: Ints, segment: Ints, wanted: Ints) -> Ints:
    """The first candidate cell at or after `begin` if it is of the wanted segment, else -1."""
    if not len(candidates):
        return np.full(len(begin), -1, np.int64)
    at = np.searchsorted(candidates, begin)
    found = candidates[np.minimum(at, len(candidates) - 1)]
    return np.where((at < len(candidates)) & (segment[found] == wanted), found, -1)


def written_cells(hands: Handoffs, activity: Activity) -> Bools:
    """[2, cells]: whether an active writer writes the cell in each token."""
    written = np.zeros((2, hands.cells), bool)
    owner, cell = hands.writer_cell.T
    for token in range(2):
        written[token, cell[activity.writers[token][owner]]] = True
    return written


def reader_pairs(hands: Handoffs, activity: Activity) -> tuple[Pairs, Ints]:
    """(groups and the writers that overwrite what they read, rows of `group_cell` overwritten before they are read).

    The second are readers of the token before whose packet has another value by the end of that token.
    """
    cell, token = next_cells(hands, written_cells(hands, activity))
    group = np.nonzero(np.bincount(hands.reader_group[activity.readers[0]], minlength=hands.groups))[0]
    rows = np.nonzero(np.isin(hands.group_cell[:, 0], group))[0]
    previous = hands.group_previous[hands.group_cell[rows, 0]]
    when = token[hands.group_cell[rows, 1]]
    lost = rows[previous & (when == 0)]
    keep = np.where(previous, when == 1, when >= 0)
    tokens = np.where(previous, 0, when)[keep]
    rows = rows[keep]
    left = np.stack([hands.group_cell[rows, 0], cell[hands.group_cell[rows, 1]]], 1)
    return _pairs(hands, activity, left, tokens), lost


def writer_pairs(hands: Handoffs, activity: Activity) -> Pairs:
    """Writers and the next writers of the same packets."""
    cell, token = next_cells(hands, written_cells(hands, activity))
    rows = np.nonzero(activity.writers[0][hands.writer_cell[:, 0]])[0]
    when = token[hands.writer_cell[rows, 1]]
    rows, when = rows[when >= 0], when[when >= 0]
    left = np.stack([hands.writer_cell[rows, 0], cell[hands.writer_cell[rows, 1]]], 1)
    return _pairs(hands, activity, left, when)


def _pairs(hands: Handoffs, activity: Activity, left: Ints, token: Ints) -> Pairs:
    """The pairs of `left` (owner, next cell) with the active writers of that cell in that token."""
    i, j = join(left, hands.writer_cell, hands.cells)
    writer = hands.writer_cell[j, 0]
    keep = activity.writers[token[i], writer]
    return Pairs(left[i, 0][keep], writer[keep], token[i][keep])
