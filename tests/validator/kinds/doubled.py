"""Tasks that are there twice."""

from __future__ import annotations

from tests.validator.kinds.kind import kind
from tests.validator.kinds.sheet import Sheet
from tests.validator.kinds.units import unit


@kind(3, 9)
def tile_twice(sheet: Sheet) -> bool:
    found = unit(sheet, "publish")
    if found:
        for lane, places in enumerate(found.places()):
            tasks = sheet.lanes[found.key(lane)]
            for place in reversed(places):
                tasks.insert(place, list(tasks[place]))
    return found is not None


@kind(3, 12)
def doubled_producer(sheet: Sheet) -> bool:
    first, second = sheet.any("publish"), sheet.any("publish")
    if not first or not second or first[2][1:3] == second[2][1:3]:
        return False
    first[2][1:3] = second[2][1:3]
    return True


@kind(3, 4, 6, 9, 12)
def attend_twice(sheet: Sheet) -> bool:
    """An attend takes the place of another."""
    found = sheet.find("attend")
    if len(found) < 2:
        return False
    (a, i), (b, j) = sheet.rng.sample(found, 2)
    sheet.lanes[a][i] = list(sheet.lanes[b][j])
    return True
