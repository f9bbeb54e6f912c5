"""The encoding."""

from __future__ import annotations

from schedule_ir import REGISTRY
from tests.validator.kinds.kind import kind
from tests.validator.kinds.sheet import Sheet
from tests.validator.kinds.units import MULTIPLIES


@kind(1)
def word_after_the_fields(sheet: Sheet) -> bool:
    rows = [row for rows in sheet.lanes.values() for row in rows if len(REGISTRY[sheet.ops[row[0]]].fields) < 11]
    sheet.rng.choice(rows)[11] = 7
    return True


@kind(1)
def opcode_beyond_variants(sheet: Sheet) -> bool:
    key = sheet.rng.choice([k for k, rows in sheet.lanes.items() if rows])
    sheet.rng.choice(sheet.lanes[key])[0] = len(sheet.ops)
    return True


@kind(1)
def task_of_another_lane(sheet: Sheet) -> bool:
    found = sheet.any(*MULTIPLIES, "publish", "copy_tape")
    if not found:
        return False
    key = next(k for k, rows in sheet.lanes.items() if rows is found[0])
    sheet.lanes[key[0], (key[1] + 1) % 3, key[2]].append(found[0].pop(found[1]))
    return True


@kind(1)
def unknown_header_field(sheet: Sheet) -> bool:
    sheet.header["surprise"] = 1
    return True


@kind(1)
def lost_config(sheet: Sheet) -> bool:
    del sheet.header["config"][sheet.rng.choice(["phases", "max_seq", "ring_stages", "reduce_slots"])]
    return True
