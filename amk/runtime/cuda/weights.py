"""Weights onto the GPU: one tensor at a time into a staging buffer, from there into the tapes by a small kernel."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from amk.model.graph import TensorRef
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.random_weights import random_key, random_step
from amk.model.source import Model
from amk.progress import Progress
from amk.runtime.cuda.driver import Memory, call, driver, pack_arguments, to_device
from amk.tape import row_table
from schedule_ir.layout import ATOM_BYTES, TILE_ROWS
from schedule_ir.program import Program, TensorTiles

_WARPS = 8


class WeightLoader:
    """Fills the tapes of a program. Needs device memory for the tapes and for the largest tensor, no more."""

    def __init__(self, program: Program, model: Model, module: Any, memory: Memory) -> None:
        self.program, self.model, self.memory = program, model, memory
        self._repack = call(driver().cuModuleGetFunction, module, b"amk_repack")
        self._random = call(driver().cuModuleGetFunction, module, b"amk_random")
        self._refs = {ref.name: ref for ref in model.graph.tensors()}
        self.tape_begin = tape_begins(program)
        self.tape = memory.allocate(int(self.tape_begin[-1]), fill=0)
        self._staged = ""
        self._staging = 0

    def load(self, progress: Progress) -> None:
        """Pack every matrix into the tapes."""
        names = {name for tiles in self.program.tiles for name in tiles.tensors}
        self._staging = self.memory.allocate(2 * max(math.prod(self._refs[name].shape) for name in names))
        with progress.step("Loading weights", len(self.program.tiles)) as step:
            for tiles in self.program.tiles:
                self._pack(tiles)
                step.advance()
        self.memory.free(self._staging)

    def head_units(self) -> int:
        """Device array of the byte offset of each unit of the head in the tape, for embedding look-ups."""
        (head,) = (tiles for tiles in self.program.tiles if tiles.name == "head")
        return self.memory.upload(self._unit_offsets(head))

    def embedding(self) -> int:
        """Row-major embedding of an untied model."""
        ref = self.model.graph.embed
        pointer = self.memory.allocate(2 * math.prod(ref.shape))
        self._fill(pointer, ref)
        return pointer

    def _pack(self, tiles: TensorTiles) -> None:
        offsets = self.memory.upload(self._unit_offsets(tiles))
        for index, name in enumerate(tiles.tensors):
            self._stage(self._refs[name])
            rows = self.memory.upload(row_table(tiles, index))
            self._launch_repack(tiles, self._refs[name], offsets, rows)
            call(driver().cuCtxSynchronize)
            self.memory.free(rows)
        self.memory.free(offsets)

    def _unit_offsets(self, tiles: TensorTiles) -> np.ndarray[Any, np.dtype[np.uint64]]:
        within = np.asarray(tiles.offsets, np.uint64) * np.uint64(ATOM_BYTES)
        offsets: np.ndarray[Any, np.dtype[np.uint64]] = self.tape_begin[np.asarray(tiles.sms)] + within
        return offsets

    def _stage(self, ref: TensorRef) -> None:
        if self._staged != ref.name:
            self._fill(self._staging, ref)
            self._staged = ref.name

    def _fill(self, pointer: int, ref: TensorRef) -> None:
        """A tensor's bf16 elements in row-major order; random ones are made where they are needed."""
        if not isinstance(self.model.checkpoint, RandomCheckpoint):
            to_device(pointer, self.model.checkpoint.bf16(ref.name))
            return
        arguments = pack_arguments(
            [
                (pointer, ctypes.c_uint64),
                (math.prod(ref.shape), ctypes.c_uint64),
                (random_key(self.model.checkpoint.seed, ref.name), ctypes.c_uint32),
                (float(random_step(ref)), ctypes.c_float),
            ]
        )
        call(driver().cuLaunchKernel, self._random, 1056, 1, 1, 256, 1, 1, 0, 0, arguments, 0)
        call(driver().cuCtxSynchronize)

    def _launch_repack(self, tiles: TensorTiles, ref: TensorRef, offsets: int, rows: int) -> None:
        begin, end = tiles.columns
        arguments = pack_arguments(
            [
                (self._staging, ctypes.c_uint64),
                (self.tape, ctypes.c_uint64),
                (offsets, ctypes.c_uint64),
                (rows, ctypes.c_uint64),
                (tiles.atoms, ctypes.c_int32),
                (tiles.unit_rows, ctypes.c_int32),
                (begin, ctypes.c_int32),
                (end, ctypes.c_int32),
                (ref.shape[1], ctypes.c_int32),
            ]
        )
        grid = (len(tiles.sms), -(-tiles.atoms // _WARPS), 1)
        call(driver().cuLaunchKernel, self._repack, *grid, 32 * _WARPS, 1, 1, 0, 0, arguments, 0)


def tape_begins(program: Program) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Byte offset of each SM's tape in the one tape allocation, and its end: uint64 [sms + 1]."""
    sizes = [program.buffer(f"tape.{sm}").size * ATOM_BYTES for sm in range(program.sms)]
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.uint64)


def weight_bytes(program: Program, model: Model) -> tuple[int, int]:
    """(bytes of weights that stay on the GPU, bytes of the staging buffer while loading)."""
    embedding = 0 if program.config["tied_head"] else 2 * math.prod(model.graph.embed.shape)
    largest = max(math.prod(ref.shape) for ref in model.graph.tensors())
    return int(tape_begins(program)[-1]) + embedding, 2 * largest


assert TILE_ROWS == 16  # the repack kernel's rows of a unit
