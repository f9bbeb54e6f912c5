"""Rule 12, first part: what the schedule does with each matrix, as one record per matrix or sum of pieces of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schedule_ir.layout import TILE_ROWS
from validator import describe
from validator.chains import Chains, chains
from validator.columns import Columns, Ints
from validator.matching import Matching
from validator.report import Violation
from validator.rules.coverage import loaders
from validator.tape import Units, unit_of, units


@dataclass(frozen=True)
class Piece:
    """A matrix, or some columns of it, and the activation of `loader` (op, its constants and arguments; first task)
    that it is multiplied with.
    """

    tile: int
    loader: str
    given: tuple[tuple[str, int], ...]
    task: int

    @property
    def arguments(self) -> dict[str, int]:
        """Constants and arguments of the loader."""
        return dict(self.given)


@dataclass(frozen=True)
class Use:
    """The products of these pieces are summed, in this order, and taken by `op`, the matrix's packed row 0 (not always
    one of theirs) at `base` and the others right after; with this phase, these flags, this place of the bias, in this
    section.
    """

    pieces: tuple[Piece, ...]
    op: str
    base: int
    phase: int
    scaled: bool
    gated: bool
    bias: int | None
    section: int

    @property
    def only(self) -> Piece:
        """The piece of a matrix that is used whole."""
        (piece,) = self.pieces
        return piece


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of one use: `row` (of the units) and `task`, `load` of its links are [sums, pieces], `taker` is [sums]."""

    row: Ints
    task: Ints
    load: Ints
    taker: Ints


def uses(columns: Columns, matching: Matching) -> tuple[dict[int, Use], list[Violation]]:
    """Theorem: the units of a matrix are used alike: each summed with the same unit of the same other matrices in the
    same order, with the same loaders, same consumer, outputs in order from one base. The use of each matrix is unique.

    Every unit was shown to be copied once (rule 9), to be drained by the multiplication that it is matched with (rule
    6), and sums to be handed on as they are parked (rule 9).
    """
    found = units(columns)
    result: dict[int, Use] = {}
    for sums in _sums(columns, matching, found):
        if isinstance(sums, Violation):
            return {}, [sums]
        problem = (
            _other_rows(columns, found, sums)
            or _differences(columns, found, sums)
            or _used_again(columns, found, sums, result)
        )
        if problem:
            return {}, [problem]
        result |= dict.fromkeys(found.tile[sums.row[0]].tolist(), _use(columns, found, sums))
    return result, []


def _sums(columns: Columns, matching: Matching, found: Units) -> Iterator[_Sums | Violation]:
    """The sums by the matrix of their first piece, in the order of its units; a violation if their pieces differ."""
    linked = chains(columns)
    row = unit_of(columns, found, matching.copy[linked.task])
    load = loaders(columns, linked.task)
    taker = np.full(columns.tasks, -1, np.int64)
    takes = np.nonzero(matching.taken >= 0)[0]
    taker[matching.taken[takes]] = takes
    size, first = np.diff(linked.begin), row[linked.begin[:-1]]
    order = np.lexsort((found.unit[first], found.tile[first]))
    cuts = np.nonzero(np.diff(found.tile[first[order]]))[0] + 1
    for part in np.split(order, cuts) if len(order) else []:
        unequal = part[size[part] != size[part[0]]]
        if len(unequal):
            yield _unequal(columns, found, linked, int(first[part[0]]), (int(part[0]), int(unequal[0])))
            return
        grid = linked.begin[part][:, None] + np.arange(size[part[0]])
        yield _Sums(row[grid], linked.task[grid], load[grid], taker[linked.task[grid[:, -1]]])


def _unequal(columns: Columns, found: Units, linked: Chains, row: int, pair: tuple[int, int]) -> Violation:
    name = columns.program.tiles[int(found.tile[row])].name
    lines = []
    for chain in pair:
        begin, end = linked.begin[chain : chain + 2].tolist()
        lines += [f"{end - begin} pieces:", *(describe.task(columns, int(t)) for t in linked.task[begin:end])]
    return Violation(12, f"units of {name!r} are multiplied in different numbers of pieces", "\n".join(lines))


def _used_again(columns: Columns, found: Units, sums: _Sums, result: dict[int, Use]) -> Violation | None:
    """Where a matrix of these sums is a piece of others too: some of its units here, some there, or twice here."""
    tiles = found.tile[sums.row[0]].tolist()
    again = [t for i, t in enumerate(tiles) if t in result or t in tiles[:i]]
    if not again:
        return None
    text = "\n".join(describe.task(columns, int(task)) for task in sums.task[0])
    return Violation(12, f"units of {columns.program.tiles[again[0]].name!r} are pieces of different sums", text)


def _other_rows(columns: Columns, found: Units, sums: _Sums) -> Violation | None:
    """Theorem: who multiplies a unit, and who publishes it, take it for as many rows as it has (a head's: 16)."""
    tasks = np.concatenate([sums.task, sums.taker[:, None]], 1)
    taken = columns.constant("unit_rows", tasks, TILE_ROWS)
    bad = np.argwhere(taken != np.concatenate([found.rows[sums.row], found.rows[sums.row[:, :1]]], 1))
    if not len(bad):
        return None
    at, which = bad[0].tolist()
    name = columns.program.tiles[int(found.tile[sums.row[at, 0]])].name
    text = describe.task(columns, int(tasks[at, which]))
    return Violation(12, f"a unit of {name!r} is taken for one of {taken[at, which]} rows", text)


def _differences(columns: Columns, found: Units, sums: _Sums) -> Violation | None:
    """Where the units of a matrix are not used alike."""
    unit = found.unit[sums.row]
    takes = columns.words[sums.taker].copy()
    row = found.first_row[sums.row[:, 0]]
    takes[:, 1] -= np.where(columns.constant("gated", sums.taker) == 1, row // 2, row)
    biased = columns.constant("biased", sums.taker) == 1
    takes[biased, 3] -= row[biased]
    taken = np.concatenate([takes, columns.section[sums.taker][:, None]], 1)
    loaded = np.concatenate([columns.words[sums.load], columns.section[sums.load][..., None]], 2)
    for what, values, tasks in (
        ("unit number", unit - unit[:, :1], sums.task),
        ("matrix", found.tile[sums.row], sums.task),
        ("activation", loaded.reshape(len(unit), -1), sums.load),
        ("place of its output", taken, sums.taker[:, None]),
    ):
        reference = np.zeros_like(values[0]) if what == "unit number" else values[0]
        bad = np.nonzero((values != reference).any(1))[0]
        if len(bad):
            return _difference(columns, found, sums, int(bad[0]), what, tasks)
    return None


def _difference(columns: Columns, found: Units, sums: _Sums, at: int, what: str, tasks: Ints) -> Violation:
    name = columns.program.tiles[int(found.tile[sums.row[0, 0]])].name
    lines = []
    for i in sorted({0, at}):
        lines.append(f"unit {found.unit[sums.row[i, 0]]}:")
        lines += [f"  {describe.task(columns, int(task))}" for task in tasks[i]]
    lines.append(f"multiplied by {describe.task(columns, int(sums.task[at, -1]))}")
    return Violation(12, f"units of {name!r} differ in {what}", "\n".join(lines))


def _use(columns: Columns, found: Units, sums: _Sums) -> Use:
    taker = int(sums.taker[0])
    take = columns.program.variants[int(columns.opcode[taker])]
    row = int(found.first_row[sums.row[0, 0]])
    words = columns.words[taker].tolist()
    gated, biased = take.constants.get("gated", 0) == 1, take.constants.get("biased", 0) == 1
    links = zip(sums.row[0].tolist(), sums.load[0].tolist(), strict=True)
    return Use(
        pieces=tuple(_piece(columns, int(found.tile[row]), load) for row, load in links), op=take.op,
        base=words[1] - (row // 2 if gated else row),
        phase=words[2] if take.op == "publish" else -1,
        scaled=take.op == "head" or take.constants.get("scaled", 0) == 1,
        gated=gated, bias=words[3] - row if biased else None, section=int(columns.section[taker]),
    )  # fmt: skip


def _piece(columns: Columns, tile: int, load: int) -> Piece:
    variant = columns.program.variants[int(columns.opcode[load])]
    arguments = dict(zip(variant.spec.fields, columns.words[load, 1:].tolist(), strict=False))
    return Piece(tile, variant.op, tuple({**variant.constants, **arguments}.items()), load)
