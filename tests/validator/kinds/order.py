"""Order within lanes and sections."""

from __future__ import annotations

from tests.validator.kinds.kind import kind
from tests.validator.kinds.sheet import Sheet
from tests.validator.kinds.units import unit


@kind(certain=False)
def swapped_neighbours(sheet: Sheet) -> bool:
    rows = sheet.rng.choice([rows for rows in sheet.lanes.values() if len(rows) > 1])
    i = sheet.rng.randrange(len(rows) - 1)
    rows[i], rows[i + 1] = rows[i + 1], rows[i]
    return True


@kind(certain=False)
def moved_task(sheet: Sheet) -> bool:
    rows = sheet.rng.choice([rows for rows in sheet.lanes.values() if len(rows) > 1])
    rows.insert(sheet.rng.randrange(len(rows)), rows.pop(sheet.rng.randrange(len(rows))))
    return True


@kind(certain=False)
def cross_lane_cycle(sheet: Sheet) -> bool:
    """Whole units go behind a later wait on the same SM: the two-SM deadlock."""
    waits = [(k, i) for k, i in sheet.find("gather", "add_norm", "attend", "combine") if i > 0]
    if not waits:
        return False
    (key, place) = sheet.rng.choice(waits)
    rows = sheet.lanes[key]
    target = sheet.rng.randrange(place)
    rows.insert(target, rows.pop(place))
    return True


@kind(certain=False)
def early_release(sheet: Sheet) -> bool:
    found = sheet.any("kv_release")
    if found:
        found[0].insert(0, found[0].pop(found[1]))
    return found is not None


@kind(5)
def late_acquire(sheet: Sheet) -> bool:
    found = sheet.any("kv_acquire")
    if not found:
        return False
    rows = found[0]
    rows.append(rows.pop(found[1]))
    return True


@kind(certain=False)
def early_best(sheet: Sheet) -> bool:
    found = sheet.any("publish_best", "sample")
    if found:
        found[0].insert(0, found[0].pop(found[1]))
    return found is not None and len(found[0]) > 1


@kind(certain=False)
def swapped_units(sheet: Sheet) -> bool:
    """Two units of an SM change places in all three lanes; right if they are of one matrix."""
    first, second = unit(sheet, "publish"), unit(sheet, "publish")
    if not first or not second or (first.sm, first.section) != (second.sm, second.section):
        return False
    if len(first.products) != len(second.products):
        return False
    for lane, (mine, others) in enumerate(zip(first.places(), second.places(), strict=True)):
        rows = sheet.lanes[first.key(lane)]
        for i, j in zip(mine, others, strict=True):
            rows[i], rows[j] = rows[j], rows[i]
    return True


@kind()
def wrong_sm(sheet: Sheet) -> bool:
    """A unit is moved to another SM, whose tape does not hold it."""
    found = unit(sheet, "publish")
    if not found or sheet.header["config"]["sms"] < 2:
        return False
    other = (found.sm + 1) % sheet.header["config"]["sms"]
    for lane, rows in enumerate(found.remove(sheet)):
        sheet.lanes[other, lane, found.section] += rows
    return True


@kind(certain=False)
def body_to_head(sheet: Sheet) -> bool:
    """A unit of the body's end becomes part of the head, which most prompt tokens skip."""
    sm = sheet.rng.randrange(sheet.header["config"]["sms"])
    moved = False
    for lane, ops in enumerate((("copy_tape",), ("gemv", "gemv_resume"), ("publish",))):
        rows = sheet.lanes[sm, lane, 0]
        places = [i for i, row in enumerate(rows) if sheet.ops[row[0]] in ops]
        if not places:
            return False
        sheet.lanes[sm, lane, 1].insert(0, rows.pop(places[-1]))
        moved = True
    return moved
