"""Which unit of which matrix every tape copy brings: the meaning of the tape bytes, from the header's tile tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schedule_ir.layout import TILE_ROWS, UNIT_ROWS, ceil_to, ksteps
from schedule_ir.program import TensorTiles
from validator.columns import Columns, Ints


@dataclass(frozen=True, eq=False)
class Units:
    """All units of all tile tables: `tile` numbers the table, `unit` the unit in it, of so many atoms, and of `rows`
    packed rows of the matrix from `first_row` on; sorted by place on the tapes.
    """

    tile: Ints
    unit: Ints
    sm: Ints
    offset: Ints
    atoms: Ints
    rows: Ints
    first_row: Ints


def packed_rows(rows: tuple[int, ...], interleaved: bool) -> int:
    """Rows of stacked or interleaved tensors in packed order."""
    return len(rows) * ceil_to(max(rows, default=0), TILE_ROWS // 2) if interleaved else sum(rows)


def shape_problem(tiles: TensorTiles) -> str | None:
    """Theorem: units begin at a row of the matrix, each has the k-steps that its columns need; a unit of 8 rows has two
    whole halves of K, and is not of interleaved tensors. (That they are all rows, once, is rule 12.)
    """
    begin, end = tiles.columns
    if tiles.unit_rows not in UNIT_ROWS or (tiles.unit_rows < TILE_ROWS and (tiles.ksteps % 2 or tiles.interleaved)):
        return f"matrix {tiles.name!r}: {tiles.ksteps} k-steps cannot lie in units of {tiles.unit_rows} rows"
    rows = packed_rows(tiles.rows, tiles.interleaved)
    if not tiles.rows or min(tiles.rows) < 1 or len(tiles.rows) != len(tiles.tensors):
        return f"matrix {tiles.name!r}: rows {tiles.rows} do not fit its tensors {tiles.tensors}"
    if not 0 <= begin < end or ksteps(end - begin) != tiles.ksteps:
        return f"matrix {tiles.name!r}: columns [{begin}, {end}) do not make {tiles.ksteps} k-steps"
    last = tiles.first_row + (len(tiles.sms) - 1) * tiles.unit_rows
    if len(tiles.sms) != len(tiles.offsets) or not tiles.sms or not 0 <= tiles.first_row <= last < rows:
        return (
            f"matrix {tiles.name!r}: {rows} packed rows do not make {len(tiles.sms)} units from row {tiles.first_row}"
        )
    if tiles.first_row % (TILE_ROWS if tiles.interleaved else 1):
        return f"matrix {tiles.name!r}: row {tiles.first_row} is within a unit of interleaved tensors"
    if tiles.interleaved and (len(tiles.rows) != 2 or len(set(tiles.rows)) != 1):
        return f"matrix {tiles.name!r}: two tensors of equally many rows can be interleaved, not {tiles.rows}"
    return None


def units(columns: Columns) -> Units:
    """The units of matrices whose shapes are right."""
    tiles = columns.program.tiles
    counts = [len(t.sms) for t in tiles]
    tile = np.repeat(np.arange(len(tiles)), counts)
    unit = np.concatenate([np.arange(n) for n in counts]) if tiles else np.zeros(0, np.int64)
    sm, offset = (
        np.concatenate([np.array(getattr(t, name), np.int64) for t in tiles]) if tiles else np.zeros(0, np.int64)
        for name in ("sms", "offsets")
    )
    atoms, rows, begins = (
        np.repeat(np.array([getattr(t, name) for t in tiles], np.int64), counts)
        for name in ("atoms", "unit_rows", "first_row")
    )
    order = np.lexsort((offset, sm))
    return Units(*(values[order] for values in (tile, unit, sm, offset, atoms, rows, begins + unit * rows)))


def unit_of(columns: Columns, found: Units, copies: Ints) -> Ints:
    """For each tape copy the unit (row of `found`) that it copies exactly, or -1."""
    key = found.sm * (1 << 32) + found.offset
    wanted = columns.sm[copies] * (1 << 32) + columns.field("offset", copies)
    at = np.minimum(np.searchsorted(key, wanted), max(0, len(key) - 1))
    if not len(key):
        return np.full(len(copies), -1, np.int64)
    exact = (key[at] == wanted) & (found.atoms[at] == columns.constant("ksteps", copies))
    return np.where(exact, at, -1)
