"""The tasks of one unit on all three lanes."""

from __future__ import annotations

from dataclasses import dataclass

from tests.validator.kinds.sheet import Key, Row, Sheet

MULTIPLIES = ("gemv", "gemv_park", "gemv_resume")
PARKING = ("gemv_park", "gemv_resume")


@dataclass(frozen=True)
class Unit:
    """Places in the lanes of an SM's section: copies and multiplications of its pieces in order, and what takes it."""

    sm: int
    section: int
    copies: tuple[int, ...]
    products: tuple[int, ...]
    taker: int

    def key(self, lane: int) -> Key:
        """A lane of its SM and section."""
        return self.sm, lane, self.section

    def places(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """By lane."""
        return self.copies, self.products, (self.taker,)

    def remove(self, sheet: Sheet) -> list[list[Row]]:
        """Takes all its tasks out; what they were, by lane."""
        return [
            [sheet.lanes[self.key(lane)].pop(place) for place in reversed(places)][::-1]
            for lane, places in enumerate(self.places())
        ]


def unit(sheet: Sheet, taker: str, *, pieces: bool = False) -> Unit | None:
    """A random unit that an op of the epilogue lane takes; `pieces`: one that is multiplied in several."""
    found = sheet.find(taker)
    sheet.rng.shuffle(found)
    for (sm, _, section), place in found:
        made = _made(sheet, sm, section, place)
        if len(made.products) > 1 or not pieces:
            return made
    return None


def _made(sheet: Sheet, sm: int, section: int, place: int) -> Unit:
    compute = sheet.lanes[sm, 1, section]
    ops = [sheet.ops[row[0]] for row in compute]
    rank = sum(sheet.ops[row[0]] in ("publish", "head") for row in sheet.lanes[sm, 2, section][:place])
    last = [i for i, op in enumerate(ops) if op in ("gemv", "gemv_resume")][rank]
    products = [last]
    if ops[last] == "gemv_resume":
        mine = [i for i in range(last) if ops[i] in PARKING and compute[i][1] == compute[last][1]]
        closed = max((i for i in mine if ops[i] == "gemv_resume"), default=-1)
        products = [*(i for i in mine if i > closed), last]
    drains = [i for i, op in enumerate(ops) if op in MULTIPLIES]
    copies = [i for i, row in enumerate(sheet.lanes[sm, 0, section]) if sheet.ops[row[0]] == "copy_tape"]
    return Unit(sm, section, tuple(copies[drains.index(i)] for i in products), tuple(products), place)
