"""The task that stores the new K/V row: whether, when and which."""

from __future__ import annotations

from tests.validator.kinds.kind import drop, kind, nudge
from tests.validator.kinds.sheet import Row, Sheet


def _moved(sheet: Sheet) -> tuple[list[Row], int, Row] | None:
    """A random append: its lane, its place and itself, taken out."""
    found = sheet.any("append")
    return (found[0], found[1], found[0].pop(found[1])) if found else None


@kind(9)
def dropped_append(sheet: Sheet) -> bool:
    return drop(sheet, "append")


@kind(9)
def doubled_append(sheet: Sheet) -> bool:
    found = sheet.any("append")
    if found:
        found[0].insert(found[1], list(found[2]))
    return found is not None


@kind(4, 9)
def append_before_its_attend(sheet: Sheet) -> bool:
    found = _moved(sheet)
    if not found:
        return False
    rows, place, append = found
    attends = [i for i in range(place) if sheet.ops[rows[i][0]] == "attend"]
    rows.insert(attends[-1], append)
    return True


@kind(9)
def append_after_another_attend(sheet: Sheet) -> bool:
    """After an attend of the same split of another K/V head, which has left another row."""
    found = _moved(sheet)
    if not found:
        return False
    rows, place, append = found
    head, split = append[1:3]
    later = [
        i
        for i, row in enumerate(rows)
        if i >= place and sheet.ops[row[0]] == "attend" and row[sheet.column(row, "kv_head")] != head
        and row[sheet.column(row, "split")] == split
    ]  # fmt: skip
    if not later:
        return False
    rows.insert(sheet.rng.choice(later) + 1, append)
    return True


@kind(5, 9)
def append_after_the_last_unit(sheet: Sheet) -> bool:
    """No unit is left that would carry the row to the epilogue lane."""
    found = _moved(sheet)
    if not found:
        return False
    found[0].append(found[2])
    return True


@kind(5)
def append_in_the_head(sheet: Sheet) -> bool:
    found = sheet.any("append")
    if not found:
        return False
    sm = next(key[0] for key, rows in sheet.lanes.items() if rows is found[0])
    sheet.lanes[sm, 1, 1].insert(0, found[0].pop(found[1]))
    return True


@kind(4, 9)
def append_on_another_sm(sheet: Sheet) -> bool:
    found = sheet.any("append")
    if not found or sheet.header["config"]["sms"] < 2:
        return False
    sm = next(key[0] for key, rows in sheet.lanes.items() if rows is found[0])
    other = (sm + 1) % sheet.header["config"]["sms"]
    rows = sheet.lanes[other, 1, 0]
    rows.insert(sheet.rng.randrange(len(rows)), found[0].pop(found[1]))
    return True


@kind(1, 9)
def append_of_another_split(sheet: Sheet) -> bool:
    return nudge(sheet, "split", ("append",), (-1, 1))


@kind(1, 9)
def append_of_another_head(sheet: Sheet) -> bool:
    return nudge(sheet, "kv_head", ("append",), (-1, 1, 2))


@kind(9)
def append_of_another_window(sheet: Sheet) -> bool:
    found = sheet.any("append")
    if not found:
        return False
    found[2][0] = sheet.opcode("append", {"window": sheet.constants(found[2])["window"] + 32})
    return True


@kind(certain=False)
def moved_append(sheet: Sheet) -> bool:
    """Anywhere in its lane: right between its attend and the next, if a unit is left."""
    found = _moved(sheet)
    if not found:
        return False
    found[0].insert(sheet.rng.randrange(len(found[0]) + 1), found[2])
    return True


@kind(certain=False)
def swapped_appends(sheet: Sheet) -> bool:
    found = sheet.find("append")
    if len(found) < 2:
        return False
    (a, i), (b, j) = sheet.rng.sample(found, 2)
    sheet.lanes[a][i], sheet.lanes[b][j] = sheet.lanes[b][j], sheet.lanes[a][i]
    return True
