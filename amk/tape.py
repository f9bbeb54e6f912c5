"""Weight tapes: the bytes of every SM's tape, as `Program.tiles` describe them, and back.

A tape is a sequence of atoms: 16 rows x 16 columns of bf16, 512 bytes, in A-fragment order of mma.m16n8k16 (PTX ISA,
"Matrix Fragments for mma.m16n8k16"). Lane l of a warp holds four 32-bit registers of two values each; register r holds
row l / 4 + 8 * (r % 2), columns (l % 4) * 2 + 8 * (r / 2) and the one after. In memory: lane, register, half.
Of a unit of 8 rows, rows 8-15 of an atom are the same rows again, half of K further on.

bf16 is handled as uint16 bit patterns; a pair of halves travels as one uint32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from amk.model.checkpoint import Checkpoint
from amk.progress import SILENT, Progress
from schedule_ir.layout import ATOM_BYTES, KSTEP, TILE_ROWS
from schedule_ir.program import PackedVector, Program, TensorTiles

Bits = npt.NDArray[np.uint16]
F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

ATOM_VALUES = ATOM_BYTES // 2
PADDING = -1
"""In place of a source row: the packed row is zero."""


def pack_tapes(program: Program, checkpoint: Checkpoint, progress: Progress = SILENT) -> list[Bits]:
    """The tape of every SM: uint16 [atoms * 256] of bf16 bit patterns."""
    tapes = [np.zeros((_atoms(program, sm), ATOM_VALUES), np.uint16) for sm in range(program.sms)]
    with progress.step("Packing weights", len(program.tiles)) as step:
        for tiles in program.tiles:
            units = pack_tiles(tiles, [checkpoint.bf16(name) for name in tiles.tensors])
            for unit, sm, offset in zip(units, tiles.sms, tiles.offsets, strict=True):
                tapes[sm][offset : offset + tiles.atoms] = unit
            step.advance()
    return [tape.reshape(-1) for tape in tapes]


def pack_tape(program: Program, checkpoint: Checkpoint, sm: int) -> npt.NDArray[np.uint8]:
    """The bytes of one SM's tape: uint8 [atoms * 512]; no other SM's units are packed."""
    tape = np.zeros((_atoms(program, sm), ATOM_VALUES), np.uint16)
    for tiles in program.tiles:
        mine = [unit for unit, owner in enumerate(tiles.sms) if owner == sm]
        if not mine:
            continue
        packed = pack_tiles(tiles, [checkpoint.bf16(name) for name in tiles.tensors], mine)
        for unit, values in zip(mine, packed, strict=True):
            tape[tiles.offsets[unit] : tiles.offsets[unit] + tiles.atoms] = values
    return tape.reshape(-1).view(np.uint8)


def _atoms(program: Program, sm: int) -> int:
    return program.buffer(f"tape.{sm}").size


def pack_tiles(tiles: TensorTiles, tensors: Sequence[Bits], units: Sequence[int] | None = None) -> Bits:
    """uint16 [units, atoms, 256]: units (all, in order, by default) of a matrix from its tensors [rows, columns]."""
    chosen = np.arange(len(tiles.sms)) if units is None else np.asarray(units)
    begin, end = tiles.columns
    packed = np.zeros((len(chosen) * tiles.unit_rows, tiles.ksteps * KSTEP), np.uint16)
    for index, tensor in enumerate(tensors):
        source = row_table(tiles, index).reshape(-1, tiles.unit_rows)[chosen].reshape(-1)
        target = np.flatnonzero(source != PADDING)
        packed[target, : end - begin] = tensor[source[target], begin:end]
    return to_fragments(packed if tiles.unit_rows == TILE_ROWS else _fold(packed))


def _fold(rows: Bits) -> Bits:
    """[units * 8, K] -> [units * 16, K / 2]: the second half of K goes below the first."""
    units, half = rows.shape[0] // (TILE_ROWS // 2), rows.shape[1] // 2
    halves = rows.reshape(units, TILE_ROWS // 2, 2, half).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(halves).reshape(units * TILE_ROWS, half)


def unfold(tiles: F32) -> F32:
    """[units, 16, K / 2] as `from_fragments` gives it -> [units, 8, K]: the rows of units of 8."""
    units, rows, half = tiles.shape
    halves = tiles.reshape(units, 2, rows // 2, half).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(halves).reshape(units, rows // 2, 2 * half)


def to_fragments(rows: Bits) -> Bits:
    """uint16 [units * 16, K] in row-major order -> [units, K / 16, 256] in fragment order."""
    units, steps = rows.shape[0] // TILE_ROWS, rows.shape[1] // KSTEP
    pairs = np.ascontiguousarray(rows).view(np.uint32).reshape(units, 2, 8, steps, 2, 4)
    # [unit, row half, row, k-step, column half, column pair] -> [.., lane = (row, column pair), register]
    atoms = np.ascontiguousarray(pairs.transpose(0, 3, 2, 5, 4, 1))
    return atoms.view(np.uint16).reshape(units, steps, ATOM_VALUES)


def from_fragments(atoms: Bits) -> F32:
    """uint16 [units, ksteps, 256] in fragment order -> float32 [units, 16, ksteps * 16] in row-major order."""
    units, steps = atoms.shape[:2]
    values = np.zeros((units, 2, 8, steps, 2, 4, 2, 2), np.uint16)
    source = atoms.reshape(units, steps, 8, 4, 2, 2, 2)
    # A bf16 is the high half of the fp32 of the same value: fill the halves in place, in one pass.
    values[..., 1] = source.transpose(0, 5, 2, 1, 4, 3, 6)
    return values.view(np.float32).reshape(units, TILE_ROWS, steps * KSTEP)


def unpack_unit(tape: Bits, offset: int, ksteps: int) -> F32:
    """float32 [16, ksteps * 16]: the unit at atom `offset` of a tape (uint16 [atoms * 256])."""
    unit: F32 = from_fragments(tape.reshape(-1, ATOM_VALUES)[None, offset : offset + ksteps])[0]
    return unit


def row_table(tiles: TensorTiles | PackedVector, tensor_index: int) -> I32:
    """int32 [packed rows]: for each packed row the row of this tensor that it holds, -1 where it holds another's.

    Packed rows are those of every unit of tiles; for a bias vector, as many as its matrix has.
    """
    if isinstance(tiles, PackedVector):
        return _whole_table(tiles, tensor_index, _packed_rows(tiles))
    begin, end = tiles.first_row, tiles.first_row + len(tiles.sms) * tiles.unit_rows
    return _whole_table(tiles, tensor_index, max(end, _packed_rows(tiles)))[begin:end]


def _whole_table(tiles: TensorTiles | PackedVector, tensor_index: int, length: int) -> I32:
    """That of a whole matrix, padded to `length`."""
    table = np.full(length, PADDING, np.int32)
    rows = tiles.rows[tensor_index]
    if tiles.interleaved:
        each = TILE_ROWS // len(tiles.tensors)
        slots = table.reshape(-1, len(tiles.tensors), each)[:, tensor_index]
        source = np.arange(slots.size, dtype=np.int32).reshape(slots.shape)
        slots[...] = np.where(source < rows, source, PADDING)
    else:
        first = sum(tiles.rows[:tensor_index])
        table[first : first + rows] = np.arange(rows, dtype=np.int32)
    return table


def _packed_rows(tiles: TensorTiles | PackedVector) -> int:
    each = TILE_ROWS // len(tiles.tensors) if tiles.interleaved else TILE_ROWS
    rows = max(tiles.rows) if tiles.interleaved else sum(tiles.rows)
    return -(-rows // each) * TILE_ROWS


def row_source(tiles: TensorTiles, unit: int) -> list[tuple[int, int]]:
    """(tensor index, row) of each row of a unit; (-1, -1) for a padding row."""
    sources = [(PADDING, PADDING)] * tiles.unit_rows
    for index in range(len(tiles.tensors)):
        rows = row_table(tiles, index)[unit * tiles.unit_rows : (unit + 1) * tiles.unit_rows]
        for slot in np.flatnonzero(rows != PADDING):
            sources[slot] = (index, int(rows[slot]))
    return sources


def norm_array(program: Program, checkpoint: Checkpoint) -> F32:
    """float32 [len(norms), hidden_padded]: the norm weights by row, padded with zeros; ones for "" (no norm)."""
    norms = np.zeros((len(program.norms), program.config["hidden_padded"]), np.float32)
    for row, name in enumerate(program.norms):
        norms[row, : program.config["hidden"]] = checkpoint.fp32(name) if name else 1
    return norms


def bias_array(program: Program, checkpoint: Checkpoint) -> F32:
    """float32 [size of the bias buffer]: every bias in the packed row order of its matrix, padded with zeros."""
    biases = np.zeros(program.buffer("biases").size, np.float32)
    for vector in program.biases:
        for index, name in enumerate(vector.tensors):
            if not name:
                continue
            source = row_table(vector, index)
            target = np.flatnonzero(source != PADDING)
            biases[vector.offset + target] = checkpoint.fp32(name)[source[target]]
    return biases
