"""The two FIFOs inside an SM: the ring (stream -> compute) and the reduction slots (compute -> epilogue).

The n-th producer of a section is matched with its n-th consumer. Both must be equally many in each section, so that the
match holds for every sequence of tokens with and without a head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator import describe
from validator.columns import COMPUTE, SECTION_NAMES, STREAM, Columns, Ints
from validator.report import Violation


@dataclass(frozen=True, eq=False)
class Matching:
    """For each task: `copy` the stream task whose chunks it drains, `taken` the gemv whose slot it takes (else -1).

    `known_compute[t]`: how many tasks of its SM's compute lane are done before task t of an epilogue or compute lane
    writes (itself included for compute); 0 where nothing is known. `known_stream[t]`: the same of the stream lane.
    """

    copy: Ints
    taken: Ints
    known_compute: Ints
    known_stream: Ints


def match(columns: Columns) -> tuple[Matching | None, list[Violation]]:
    """Both matchings, or the first place where they do not fit."""
    variants = columns.program.variants
    chunks = np.array([v.spec.chunks is not None for v in variants], bool)[columns.opcode]
    slots = np.array([v.spec.reduce_slots for v in variants], np.int64)[columns.opcode]
    streams = np.nonzero(chunks & (columns.lane == STREAM))[0]
    drains = np.nonzero(chunks & (columns.lane == COMPUTE))[0]
    gives, takes = np.nonzero(slots == 1)[0], np.nonzero(slots == -1)[0]
    problems = _pairs_problems(columns, streams, drains, 6, "ring", "copies", "drains")
    problems += _pairs_problems(columns, gives, takes, 2, "reduction slots", "hands over", "takes")
    if problems:
        return None, problems
    copy, taken = np.full((2, columns.tasks), -1, np.int64)
    copy[drains], taken[takes] = streams, gives
    return _knowledge(columns, copy, taken), []


def _pairs_problems(
    columns: Columns, producers: Ints, consumers: Ints, rule: int, what: str, verb: str, other: str
) -> list[Violation]:
    """Theorem: in every section of every SM there are as many producers as consumers."""
    key = columns.sm * 2 + columns.section
    made = np.bincount(key[producers], minlength=2 * columns.sms)
    used = np.bincount(key[consumers], minlength=2 * columns.sms)
    bad = np.nonzero(made != used)[0]
    if not len(bad):
        return []
    sm, section = divmod(int(bad[0]), 2)
    place = f"SM {sm} {SECTION_NAMES[section]}"
    longer, count = (producers, used) if made[bad[0]] > used[bad[0]] else (consumers, made)
    first = longer[key[longer] == bad[0]][count[bad[0]]]
    waits = "fills a slot that nobody drains" if made[bad[0]] > used[bad[0]] else "waits for a slot that nobody fills"
    witness = f"{describe.task(columns, int(first))}\n  {waits}: deadlock; missing: its partner in the same section"
    return [Violation(rule, f"{what}: {place} {verb} {made[bad[0]]} times and {other} {used[bad[0]]} times", witness)]


def _knowledge(columns: Columns, copy: Ints, taken: Ints) -> Matching:
    """Carries the matches forward along each lane: what was known stays known."""
    known_compute = _running_max(columns, np.where(taken >= 0, columns.index[taken] + 1, 0))
    known_stream = _running_max(columns, np.where(copy >= 0, columns.index[copy] + 1, 0))
    through = _running_max(columns, np.where(taken >= 0, known_stream[taken], 0))
    compute = columns.lane == COMPUTE
    known_compute = np.where(compute, columns.index + 1, known_compute)
    return Matching(copy, taken, known_compute, np.where(compute, known_stream, through))


def _running_max(columns: Columns, values: Ints) -> Ints:
    """Maximum of `values` over each lane up to each task."""
    lane = columns.sm * 3 + columns.lane
    span = columns.tasks + 2
    highest: Ints = np.maximum.accumulate(values + lane * span)
    return highest - lane * span
