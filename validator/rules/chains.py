"""Rule 9, units multiplied in pieces: what is parked in an accumulator is used once, by the piece that follows."""

from __future__ import annotations

import numpy as np

from validator import describe
from validator.chains import Links, links
from validator.columns import Bools, Columns
from validator.report import Violation


def check(columns: Columns) -> list[Violation]:
    """Theorem: in every section of every SM, the tasks of an accumulator are chains: one that takes nothing from it and
    parks its sums, any number that go on from what was parked last, and one that hands the sums on and leaves nothing.

    So no parked sum is lost or used twice, none is used that this token's section has not parked, and the first token
    finds no difference. (The kernel: a thread reads and writes its own words of an accumulator only, in program order.)
    """
    found = links(columns)
    empty = found.first | np.roll(found.closes, 1)
    missing = "missing: a gemv_resume of this accumulator"
    overwritten, unused = ~empty & found.opens, found.last & ~found.closes
    problems = [
        *_lost(columns, found, overwritten, 1, "is overwritten before it was used", f"{missing} between the two"),
        *_lost(columns, found, unused, 0, "is never used", f"{missing} after it in its section"),
    ]
    bad = np.nonzero(empty & ~found.opens)[0]
    if not len(bad):
        return problems
    text = describe.task(columns, int(found.task[bad[0]]))
    missing = "missing: before it in its section, a gemv_park of this accumulator whose sums are still there"
    message = f"{_accumulator(columns, found, int(bad[0]))} is read where nothing is parked"
    return [*problems, Violation(9, message, f"{text}\n  {missing}")]


def _accumulator(columns: Columns, found: Links, row: int) -> str:
    task = found.task[row : row + 1]
    return f"accumulator {columns.field('accumulator', task)[0]} of SM {columns.sm[task[0]]}"


def _lost(columns: Columns, found: Links, wrong: Bools, before: int, what: str, missing: str) -> list[Violation]:
    """A parked sum that is lost, shown with this many links before it."""
    bad = np.nonzero(wrong)[0]
    if not len(bad):
        return []
    row = int(bad[0])
    lines = [describe.task(columns, int(found.task[i])) for i in range(row - before, row + 1)]
    where = _accumulator(columns, found, row)
    return [Violation(9, f"what is parked in {where} {what}", "\n".join([*lines, f"  {missing}"]))]
