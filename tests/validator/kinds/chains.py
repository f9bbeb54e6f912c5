"""Units multiplied in pieces: links, accumulators, the columns of the pieces and what they are multiplied with."""

from __future__ import annotations

from typing import Any

from tests.validator.kinds.kind import config, kind
from tests.validator.kinds.sheet import Row, Sheet
from tests.validator.kinds.units import PARKING, Unit, unit


def _link(sheet: Sheet) -> tuple[Unit, int] | None:
    """A unit in pieces and the number of one of them."""
    found = unit(sheet, "publish", pieces=True)
    return (found, sheet.rng.randrange(len(found.products))) if found else None


def _rows(sheet: Sheet, of: Unit, which: int) -> tuple[Row, Row]:
    """The copy and the multiplication of a piece."""
    return sheet.lanes[of.key(0)][of.copies[which]], sheet.lanes[of.key(1)][of.products[which]]


@kind(9)
def dropped_link(sheet: Sheet) -> bool:
    found = _link(sheet)
    if not found:
        return False
    of, which = found
    if which == len(of.products) - 1:
        return False  # then nobody hands over: dropped_gemv
    for lane, places in ((0, of.copies), (1, of.products)):
        del sheet.lanes[of.key(lane)][places[which]]
    return True


@kind(9)
def doubled_link(sheet: Sheet) -> bool:
    found = _link(sheet)
    if not found or found[1] == len(found[0].products) - 1:
        return False
    of, which = found
    for lane, places in ((0, of.copies), (1, of.products)):
        rows = sheet.lanes[of.key(lane)]
        rows.insert(places[which], list(rows[places[which]]))
    return True


@kind(6, 12)
def swapped_pieces(sheet: Sheet) -> bool:
    """The copies of two pieces change places: each is multiplied with the other's activation."""
    of = unit(sheet, "publish", pieces=True)
    if not of:
        return False
    i, j = sheet.rng.sample(of.copies, 2)
    rows = sheet.lanes[of.key(0)]
    rows[i], rows[j] = rows[j], rows[i]
    return True


@kind(9, 12)
def swapped_links(sheet: Sheet) -> bool:
    """Two links of a chain, with their copies, change places."""
    of = unit(sheet, "publish", pieces=True)
    if not of:
        return False
    a, b = sheet.rng.sample(range(len(of.products)), 2)
    for lane, places in ((0, of.copies), (1, of.products)):
        rows = sheet.lanes[of.key(lane)]
        rows[places[a]], rows[places[b]] = rows[places[b]], rows[places[a]]
    return True


@kind(1, 9, 12)
def wrong_accumulator(sheet: Sheet) -> bool:
    found = sheet.any(*PARKING)
    if not found or not any(sheet.ops[row[0]] == "gemv_resume" for row in found[0]):
        return False
    found[2][1] = max(0, found[2][1] + sheet.rng.choice([-1, 1, 2]))
    return True


def _neighbours(sheet: Sheet) -> tuple[Unit, Unit] | None:
    """Two units that an SM has in pieces at the same time."""
    for _ in range(20):
        first, second = unit(sheet, "publish", pieces=True), unit(sheet, "publish", pieces=True)
        if not first or not second or first.key(1) != second.key(1) or first == second:
            continue
        if first.products[0] < second.products[-1] and second.products[0] < first.products[-1]:
            return first, second
    return None


@kind(12)
def accumulators_exchanged(sheet: Sheet) -> bool:
    """From some piece on two units of an SM go on from each other's sums."""
    pair = _neighbours(sheet)
    if not pair:
        return False
    first, second = pair
    rows = sheet.lanes[first.key(1)]
    mine, other = rows[first.products[0]][1], rows[second.products[0]][1]
    begin = sheet.rng.randrange(1, len(first.products))
    for i, j in zip(first.products[begin:], second.products[begin:], strict=True):
        rows[i][1], rows[j][1] = other, mine
    return True


@kind(9)
def resume_flipped(sheet: Sheet) -> bool:
    found = sheet.any("gemv_park")
    if not found:
        return False
    row = found[2]
    constants = sheet.constants(row)
    row[0] = sheet.opcode("gemv_park", {**constants, "resume": 1 - constants["resume"]})
    return True


@kind(9)
def handed_over_early(sheet: Sheet) -> bool:
    """A link before the last hands the sums over, the last parks them."""
    found = _link(sheet)
    if not found or found[1] == len(found[0].products) - 1:
        return False
    of, which = found
    early, last = (_rows(sheet, of, i)[1] for i in (which, -1))
    size = {name: sheet.constants(early)[name] for name in ("ksteps", "chunk_ksteps", "unit_rows")}
    early[0], last[0] = (
        sheet.opcode("gemv_resume", size),
        sheet.opcode("gemv_park", {**sheet.constants(last), "resume": 1}),
    )
    return True


@kind(2)
def never_parked(sheet: Sheet) -> bool:
    """A link is a multiplication of its own, whose sums nobody takes."""
    found = sheet.any("gemv_park")
    if not found:
        return False
    size = {name: sheet.constants(found[2])[name] for name in ("ksteps", "chunk_ksteps", "unit_rows")}
    found[2][:2] = [sheet.opcode("gemv", size), 0]
    return True


def _pieces(sheet: Sheet) -> list[dict[str, Any]]:
    """Tile tables of pieces of K."""
    whole = {tuple(tiles["tensors"]) for tiles in sheet.header["tiles"] if tiles["columns"][0] > 0}
    return [tiles for tiles in sheet.header["tiles"] if tuple(tiles["tensors"]) in whole]


@kind(9, 12)
def overlapping_pieces(sheet: Sheet) -> bool:
    """A piece begins 16 columns early, or ends 16 late."""
    pieces = _pieces(sheet)
    if not pieces:
        return False
    tiles = sheet.rng.choice(pieces)
    begin, end = tiles["columns"]
    shift = sheet.rng.choice([-16, 16])
    if sheet.rng.random() < 0.5 and begin + shift >= 0:
        tiles["columns"] = (begin + shift, end + shift)
    else:
        tiles["columns"] = (begin, end + 16)
    return True


@kind(12)
def pieces_exchanged(sheet: Sheet) -> bool:
    """Two pieces of equal size of a matrix are said to be each other's columns."""
    pieces = _pieces(sheet)
    if not pieces:
        return False
    first = sheet.rng.choice(pieces)
    size = first["columns"][1] - first["columns"][0]
    same = [t for t in pieces if t["tensors"] == first["tensors"] and t["columns"][1] - t["columns"][0] == size]
    if len(same) < 2:
        return False
    a, b = sheet.rng.sample(same, 2)
    a["columns"], b["columns"] = b["columns"], a["columns"]
    return True


@kind()
def piece_gathered_from_elsewhere(sheet: Sheet) -> bool:
    """The columns of another piece, or of the same piece a little beside."""
    found = _link(sheet)
    if not found:
        return False
    of, which = found
    rows = sheet.lanes[of.key(1)]
    loads = [i for i in range(of.products[which]) if sheet.ops[rows[i][0]] == "gather"]
    if not loads:
        return False
    gather = rows[loads[-1]]
    gather[1] = max(0, gather[1] + sheet.rng.choice([-32, -16, -2, 2, 16, 32]))
    return True


@kind()
def piece_of_another_phase(sheet: Sheet) -> bool:
    found = _link(sheet)
    if not found:
        return False
    of, which = found
    rows = sheet.lanes[of.key(1)]
    loads = [i for i in range(of.products[which]) if sheet.ops[rows[i][0]] == "gather"]
    if not loads:
        return False
    rows[loads[-1]][2] += sheet.rng.choice([1, -1]) if rows[loads[-1]][2] else 1
    return True


@kind(9, 12)
def gather_after_its_piece(sheet: Sheet) -> bool:
    """A piece is multiplied before its columns are gathered."""
    found = _link(sheet)
    if not found:
        return False
    of, which = found
    rows = sheet.lanes[of.key(1)]
    loads = [i for i in range(of.products[which]) if sheet.ops[rows[i][0]] == "gather"]
    if not loads:
        return False
    rows.insert(of.products[which], rows.pop(loads[-1]))
    return True


@kind(11)
def accumulators_too_small(sheet: Sheet) -> bool:
    if not sheet.header["config"]["accumulators"]:
        return False
    sheet.buffer("shared.accumulators")["size"] -= sheet.rng.choice([1, 4, 64])
    return True


@kind(11)
def accumulator_too_many(sheet: Sheet) -> bool:
    return config(sheet, "accumulators", 1)


@kind(1)
def accumulator_too_few(sheet: Sheet) -> bool:
    if not sheet.find(*PARKING):
        return False
    sheet.header["config"]["accumulators"] = 0
    return True


@kind(8)
def accumulators_in_another_region(sheet: Sheet) -> bool:
    if not sheet.header["config"]["accumulators"]:
        return False
    sheet.buffer("shared.accumulators")["offset"] -= 64
    return True
