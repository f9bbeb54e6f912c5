"""Tasks that are missing."""

from __future__ import annotations

from tests.validator.kinds.kind import drop, kind
from tests.validator.kinds.sheet import Sheet
from tests.validator.kinds.units import MULTIPLIES, unit


@kind(6)
def dropped_copy(sheet: Sheet) -> bool:
    return drop(sheet, "copy_tape")


@kind(2, 6)
def dropped_gemv(sheet: Sheet) -> bool:
    return drop(sheet, *MULTIPLIES)


@kind(2)
def dropped_publish(sheet: Sheet) -> bool:
    return drop(sheet, "publish", "head")


@kind(3, 9)
def missing_tile(sheet: Sheet) -> bool:
    found = unit(sheet, "publish")
    return found is not None and bool(found.remove(sheet))


@kind(9)
def missing_head_tile(sheet: Sheet) -> bool:
    found = unit(sheet, "head")
    return found is not None and bool(found.remove(sheet))


@kind()
def dropped_wait(sheet: Sheet) -> bool:
    """A gather is a lane's wait for other SMs."""
    return drop(sheet, "gather")


@kind(certain=False)
def dropped_norm(sheet: Sheet) -> bool:
    return drop(sheet, "add_norm", "embed_norm")


@kind(3, 6, 9, 12)
def dropped_attend(sheet: Sheet) -> bool:
    return drop(sheet, "attend")


@kind(6)
def dropped_kv_copy(sheet: Sheet) -> bool:
    return drop(sheet, "copy_kv")


@kind(3, 9, 12)
def dropped_split(sheet: Sheet) -> bool:
    """An attend with its copy: a gap in the splits."""
    found = sheet.any("attend")
    if not found:
        return False
    lane, place, row = found
    key = (row[sheet.column(row, "kv_head")], row[sheet.column(row, "split")])
    del lane[place]
    for owner, i in sheet.find("copy_kv"):
        other = sheet.lanes[owner][i]
        if (other[1], other[2]) == key:
            del sheet.lanes[owner][i]
            return True
    return False


@kind(3, 12)
def dropped_combine(sheet: Sheet) -> bool:
    return drop(sheet, "combine")


@kind(5)
def dropped_acquire(sheet: Sheet) -> bool:
    return drop(sheet, "kv_acquire")


@kind(3, 5)
def dropped_release(sheet: Sheet) -> bool:
    return drop(sheet, "kv_release")


@kind(12)
def dropped_sample(sheet: Sheet) -> bool:
    return drop(sheet, "sample")


@kind(3, 12)
def dropped_best(sheet: Sheet) -> bool:
    return drop(sheet, "publish_best")
