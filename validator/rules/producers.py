"""Rule 3: every awaited packet is produced exactly once per token, at every position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from validator import describe
from validator.columns import BODY, Bools, Columns
from validator.handoffs import Handoffs
from validator.report import Violation

Counts = npt.NDArray[np.int16]


def check(columns: Columns, hands: Handoffs) -> list[Violation]:
    """Theorem: in every state (split count, head or not) no packet has two producers of the same phase, and one that is
    awaited in that state has exactly one. Packets of the token before must be produced in every state, since the
    token before may have been in any.
    """
    counts = _counts(columns, hands)
    return [*_doubled(columns, hands, counts), *_missing(columns, hands, counts)]


def _states(hands: Handoffs, pattern: int, section: int) -> Bools:
    """States (head or not, split count) in which an access of this pattern and section happens."""
    active = hands.patterns[pattern]
    return np.concatenate([active & (section == BODY), active])


def _counts(columns: Columns, hands: Handoffs) -> Counts:
    """Producers of each cell in each state: first the states without a head, then those with one."""
    counts = np.zeros((hands.cells, 2 * hands.patterns.shape[1]), np.int16)
    owner, cell = hands.writer_cell.T
    kind = hands.writer_pattern * 2 + columns.section[hands.writer_task]
    for number in np.unique(kind):
        made = np.bincount(cell[kind[owner] == number], minlength=hands.cells)
        rows = np.nonzero(made)[0]
        states = np.nonzero(_states(hands, *divmod(int(number), 2)))[0]
        counts[np.ix_(rows, states)] += made[rows, None].astype(np.int16)
    return counts


def _doubled(columns: Columns, hands: Handoffs, counts: Counts) -> list[Violation]:
    bad = np.argwhere(counts > 1)
    if not len(bad):
        return []
    cell, state = (int(x) for x in bad[0])
    owners = hands.writer_cell[hands.writer_cell[:, 1] == cell, 0]
    lines = [describe.task(columns, int(hands.writer_task[w])) for w in owners]
    where = describe.packets(columns, int(hands.cell_start[cell]), int(hands.cell_length[cell]))
    return [
        Violation(
            3, f"{where}, phase {hands.cell_phase[cell]}, has two producers {_state(hands, state)}", "\n".join(lines)
        )
    ]


def _missing(columns: Columns, hands: Handoffs, counts: Counts) -> list[Violation]:
    owner, cell = hands.group_cell.T
    kind = (hands.group_pattern * 2 + hands.group_section) * 2 + hands.group_previous
    for number in np.unique(kind):
        rows = np.nonzero(kind[owner] == number)[0]
        previous = int(number) % 2
        states = _states(hands, *((0, BODY) if previous else divmod(int(number) // 2, 2)))
        bad = np.argwhere((counts[cell[rows]] == 0) & states)
        if len(bad):
            return [_unproduced(columns, hands, int(rows[bad[0, 0]]), int(bad[0, 1]))]
    return []


def _unproduced(columns: Columns, hands: Handoffs, row: int, state: int) -> Violation:
    group, cell = (int(x) for x in hands.group_cell[row])
    reader = int(hands.reader_task[np.nonzero(hands.reader_group == group)[0][0]])
    where = describe.packets(columns, int(hands.cell_start[cell]), int(hands.cell_length[cell]))
    message = f"{where}, phase {hands.cell_phase[cell]}, is awaited but never produced {_state(hands, state)}"
    return Violation(
        3, message, f"{describe.task(columns, reader)}\n  waits for ever; missing: a producer of this phase"
    )


def _state(hands: Handoffs, state: int) -> str:
    head, count = divmod(state, hands.patterns.shape[1])
    return f"at split count {count + 1} in a token {'with' if head else 'without'} a head"
