"""Rule 12, first part: what the schedule does with each matrix, as one record per matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedule_ir.layout import TILE_ROWS
from validator import describe
from validator.columns import Columns, Ints
from validator.matching import Matching
from validator.report import Violation
from validator.rules.coverage import loaders
from validator.tape import Units, unit_of, units


@dataclass(frozen=True)
class Use:
    """A matrix is multiplied with the activation of `loader` (op, its constants and arguments) and its units are taken
    by `op`, unit 0 at `base` and the others right after; with this phase, these flags, and this place of the bias.
    """

    tile: int
    op: str
    base: int
    phase: int
    scaled: bool
    gated: bool
    bias: int | None
    loader: str
    given: tuple[tuple[str, int], ...]
    task: int

    @property
    def arguments(self) -> dict[str, int]:
        """Constants and arguments of the loader."""
        return dict(self.given)


def uses(columns: Columns, matching: Matching) -> tuple[dict[int, Use], list[Violation]]:
    """Theorem: all units of a matrix are used alike: same loader, same consumer, outputs in order from one base.

    Every unit was shown to be copied once (rule 9) and to be drained by the gemv that it is matched with (rule 6).
    """
    found = units(columns)
    gemvs = columns.of("gemv")
    copies = matching.copy[gemvs]
    row = unit_of(columns, found, copies)
    taker = np.full(columns.tasks, -1, np.int64)
    takes = np.nonzero(matching.taken >= 0)[0]
    taker[matching.taken[takes]] = takes
    result: dict[int, Use] = {}
    order = np.lexsort((found.unit[row], found.tile[row]))
    load = loaders(columns, gemvs)
    cuts = np.nonzero(np.diff(found.tile[row[order]]))[0] + 1
    for part in np.split(order, cuts):
        if not len(part):
            continue
        problem = _differences(columns, found, row[part], gemvs[part], load[part], taker[gemvs[part]])
        if problem:
            return {}, [problem]
        result[int(found.tile[row[part[0]]])] = _use(
            columns, found, int(row[part[0]]), int(load[part[0]]), int(taker[gemvs[part[0]]])
        )
    return result, []


def _differences(columns: Columns, found: Units, row: Ints, gemvs: Ints, load: Ints, taker: Ints) -> Violation | None:
    """Where the units of a matrix are not used alike."""
    name = columns.program.tiles[int(found.tile[row[0]])].name
    loads = columns.words[load]
    takes = columns.words[taker].copy()
    step = np.where(columns.constant("gated", taker) == 1, TILE_ROWS // 2, TILE_ROWS)
    takes[:, 1] -= found.unit[row] * step
    biased = columns.constant("biased", taker) == 1
    takes[biased, 3] -= found.unit[row][biased] * TILE_ROWS
    sections = np.stack([columns.section[load], columns.section[taker]], 1)
    for what, values in (("activation", loads), ("place of its output", takes), ("section", sections)):
        bad = np.nonzero((values != values[0]).any(1))[0]
        if len(bad):
            at = int(bad[0])
            task = load if what == "activation" else taker
            lines = [f"unit {found.unit[row[i]]}: {describe.task(columns, int(task[i]))}" for i in (0, at)]
            return Violation(
                12, f"units of {name!r} differ in {what}", "\n".join([*lines, describe.task(columns, int(gemvs[at]))])
            )
    return None


def _use(columns: Columns, found: Units, row: int, load: int, taker: int) -> Use:
    take = columns.program.variants[int(columns.opcode[taker])]
    loader = columns.program.variants[int(columns.opcode[load])]
    unit = int(found.unit[row])
    given = {**loader.constants, **_arguments(columns, load), "section": int(columns.section[taker])}
    words = columns.words[taker].tolist()
    gated, biased = take.constants.get("gated", 0) == 1, take.constants.get("biased", 0) == 1
    return Use(
        tile=int(found.tile[row]), op=take.op, base=words[1] - unit * (TILE_ROWS // 2 if gated else TILE_ROWS),
        phase=words[2] if take.op == "publish" else -1,
        scaled=take.op == "head" or take.constants.get("scaled", 0) == 1,
        gated=gated, bias=words[3] - unit * TILE_ROWS if biased else None, loader=loader.op,
        given=tuple(given.items()), task=load,
    )  # fmt: skip


def _arguments(columns: Columns, task: int) -> dict[str, int]:
    names = columns.program.variants[int(columns.opcode[task])].spec.fields
    return dict(zip(names, columns.words[task, 1:].tolist(), strict=False))
