"""Rule 9: every output element is written exactly once, and nothing is read before it is written."""

from __future__ import annotations

import numpy as np

from validator import describe
from validator.chains import MULTIPLIES
from validator.columns import BODY, HEAD, Columns, Ints
from validator.footprints import Footprints
from validator.report import Violation
from validator.rules import appends, chains
from validator.tape import Units, shape_problem, unit_of, units


def check(columns: Columns, accesses: Footprints) -> list[Violation]:
    """Theorem: per token every unit of every matrix is copied exactly once, every K/V row is appended exactly once at
    every split count (`appends`), every parked sum is used once (`chains`), every logit is written exactly once, and
    nothing is multiplied before an activation was loaded.
    """
    problems = [Violation(9, text) for text in map(shape_problem, columns.program.tiles) if text]
    if problems:
        return problems
    found = units(columns)
    problems = _overlaps(columns, found) + _copied(columns, found)
    return [
        *problems,
        *appends.check(columns),
        *chains.check(columns),
        *_logits(columns, accesses.of("logits")),
        *_loaded(columns),
    ]


def _unit(columns: Columns, found: Units, row: int) -> str:
    tiles = columns.program.tiles[int(found.tile[row])]
    begin, end = int(found.offset[row]), int(found.offset[row] + found.atoms[row])
    return f"unit {found.unit[row]} of {tiles.name!r}, tape.{found.sm[row]} [{begin}, {end})"


def _overlaps(columns: Columns, found: Units) -> list[Violation]:
    """Theorem: units lie apart on the tapes."""
    meets = (found.sm[1:] == found.sm[:-1]) & (found.offset[:-1] + found.atoms[:-1] > found.offset[1:])
    bad = np.nonzero(meets)[0]
    outside = np.nonzero((found.sm < 0) | (found.sm >= columns.sms) | (found.offset < 0))[0]
    problems = [Violation(9, f"{_unit(columns, found, int(row))} is on no tape") for row in outside[:1]]
    if len(bad):
        row = int(bad[0])
        problems.append(
            Violation(9, "two units overlap", f"{_unit(columns, found, row)}\n{_unit(columns, found, row + 1)}")
        )
    return problems


def _copied(columns: Columns, found: Units) -> list[Violation]:
    """Theorem: every tape copy is of one unit, and every unit has one copy."""
    copies = columns.of("copy_tape")
    which = unit_of(columns, found, copies)
    stray = copies[which < 0]
    problems = []
    if len(stray):
        text = describe.task(columns, int(stray[0]))
        problems.append(Violation(9, "a tape copy is not of exactly one unit of a matrix", text))
    times = np.bincount(which[which >= 0], minlength=len(found.tile))
    bad = np.nonzero(times != 1)[0]
    if len(bad):
        row = int(bad[0])
        text = "\n".join(describe.task(columns, int(t)) for t in copies[which == row])
        problems.append(
            Violation(9, f"{_unit(columns, found, row)} is copied {times[row]} times per token, not once", text)
        )
    return problems


def _logits(columns: Columns, logits: Footprints) -> list[Violation]:
    """Theorem: the written rows are disjoint and cover [0, vocab); all in the head section."""
    order = np.argsort(logits.start, kind="stable")
    start, end = logits.start[order], (logits.start + logits.length)[order]
    due = np.concatenate(([0], end))
    bad = np.nonzero(np.append(start, columns.config["vocab"]) != due)[0]
    body = logits.task[columns.section[logits.task] != HEAD]
    if len(body):
        return [Violation(9, "logits are written outside the head section", describe.task(columns, int(body[0])))]
    if not len(bad):
        return []
    at = int(bad[0])
    text = describe.task(columns, int(logits.task[order[min(at, len(order) - 1)]])) if len(order) else ""
    gap = int(np.append(start, columns.config["vocab"])[at])
    kind = "written twice" if gap < due[at] else "never written"
    low, high = sorted((gap, int(due[at])))
    return [Violation(9, f"logits [{low}, {high}) are {kind}", text)]


def loaders(columns: Columns, gemvs: Ints) -> Ints:
    """The task that loaded the activation which each multiplication uses; -1 for none in its token."""
    loads = columns.of("embed_norm", "add_norm", "add_post_norm", "gather")
    if not len(loads):
        return np.full(len(gemvs), -1, np.int64)
    at = np.searchsorted(loads, gemvs) - 1
    task = loads[np.maximum(at, 0)]
    return np.where((at >= 0) & (columns.sm[task] == columns.sm[gemvs]), task, -1)


def _loaded(columns: Columns) -> list[Violation]:
    """Theorem: a multiplication has an activation loaded before it in its own token, in a section that has run then."""
    gemvs = columns.of(*MULTIPLIES)
    task = loaders(columns, gemvs)
    bad = np.nonzero((task < 0) | ((columns.section[gemvs] == BODY) & (columns.section[task] == HEAD)))[0]
    if not len(bad):
        return []
    text = describe.task(columns, int(gemvs[bad[0]]))
    return [Violation(9, "a unit is multiplied with an activation that was never loaded", text)]
