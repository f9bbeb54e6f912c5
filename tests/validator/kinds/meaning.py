"""What the header says of matrices, norms and numbers."""

from __future__ import annotations

from tests.validator.kinds.kind import kind
from tests.validator.kinds.sheet import Sheet


@kind(12)
def other_scale(sheet: Sheet) -> bool:
    sheet.header["scalars"] = {**sheet.header["scalars"], "eps": 1e-6}
    return True


@kind(12)
def norms_swapped(sheet: Sheet) -> bool:
    names = sheet.header["norms"] = list(sheet.header["norms"])
    i, j = sheet.rng.sample(range(len(names)), 2)
    names[i], names[j] = names[j], names[i]
    return True


@kind(12)
def layers_swapped(sheet: Sheet) -> bool:
    """Two matrices of one shape change names."""
    tiles = sheet.header["tiles"]
    i, j = sheet.rng.sample(range(len(tiles)), 2)
    a, b = tiles[i], tiles[j]
    if (a["rows"], a["columns"], a["interleaved"]) != (b["rows"], b["columns"], b["interleaved"]):
        return False
    a["tensors"], b["tensors"] = b["tensors"], a["tensors"]
    return True


@kind(9, 12)
def units_swapped(sheet: Sheet) -> bool:
    """Two units of a matrix lie in each other's place."""
    tiles = sheet.rng.choice(sheet.header["tiles"])
    if len(tiles["sms"]) < 2:
        return False
    i, j = sheet.rng.sample(range(len(tiles["sms"])), 2)
    for name in ("sms", "offsets"):
        values = list(tiles[name])
        values[i], values[j] = values[j], values[i]
        tiles[name] = tuple(values)
    return True


@kind(9, 12)
def columns_shifted(sheet: Sheet) -> bool:
    tiles = sheet.rng.choice(sheet.header["tiles"])
    tiles["columns"] = (tiles["columns"][0] + 1, tiles["columns"][1] + 1)
    return True


@kind(9, 12)
def stacked_not_interleaved(sheet: Sheet) -> bool:
    tiles = sheet.rng.choice([t for t in sheet.header["tiles"] if t["interleaved"]])
    tiles["interleaved"] = False
    return True


@kind(12)
def biases_missing(sheet: Sheet) -> bool:
    if not sheet.header["biases"]:
        return False
    sheet.header["biases"] = sheet.header["biases"][1:]
    return True
