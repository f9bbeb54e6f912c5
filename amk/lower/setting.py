"""What one lowering is of: model, target, settled knobs, and the sizes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from amk.lower.knobs import Knobs
from amk.lower.sizes import (
    Band,
    InFlight,
    SharedMemory,
    bands_of_down,
    bulk_in_flight,
    choose_memory,
    copies_in_flight,
    down_parts,
    down_pieces,
    kv_in_flight,
    loaded_tiles,
    pieces_of,
)
from amk.model.graph import ModelGraph
from schedule_ir.layout import TILE_ROWS, ceil_to
from schedule_ir.target import Target

GATED_ROWS = TILE_ROWS // 2
"""Outputs of a unit of gate and up rows."""


@dataclass(frozen=True)
class Setting:
    """`knobs` and `memory` are those that `choose_memory` settled."""

    graph: ModelGraph
    target: Target
    max_seq: int
    kv_dtype: str
    knobs: Knobs
    memory: SharedMemory

    @classmethod
    def of(cls, graph: ModelGraph, target: Target, max_seq: int, kv_dtype: str, knobs: Knobs) -> Setting:
        """Raises RejectedProgramError if nothing fits the target's shared memory."""
        return cls(graph, target, max_seq, kv_dtype, *choose_memory(graph, target, knobs, kv_dtype))

    @cached_property
    def sms(self) -> int:
        """SMs that are used: each has a gate/up unit of every layer."""
        return min(self.target.sms, -(-self.graph.intermediate // GATED_ROWS))

    @cached_property
    def splits(self) -> int:
        """Most attention splits of a K/V head."""
        return max(1, min(self.knobs.max_splits, self.sms // self.graph.kv_heads))

    @cached_property
    def hidden_padded(self) -> int:
        """Hidden size in whole units."""
        return ceil_to(self.graph.hidden, TILE_ROWS)

    @cached_property
    def bands_of_down(self) -> tuple[Band, ...]:
        """How the rows of down are shared out."""
        return bands_of_down(self.graph, self.sms, self.knobs)

    @cached_property
    def down_parts(self) -> list[tuple[int, int]]:
        """Column ranges of the K-split of down."""
        return down_parts(self.graph.intermediate, self.knobs.down_split, self.knobs)

    @cached_property
    def in_flight(self) -> InFlight:
        """Copies of q/k/v, o and down on their way."""
        return copies_in_flight(self.graph, self.target, self.knobs).within(self.memory.stages)

    @cached_property
    def kv_in_flight(self) -> InFlight:
        """Copies of past K/V on their way."""
        return kv_in_flight(self.graph, self.target, self.knobs).within(self.memory.stages)

    @cached_property
    def bulk_in_flight(self) -> InFlight:
        """Copies of gate/up and of the head on their way."""
        return bulk_in_flight(self.graph, self.target, self.knobs).within(self.memory.stages)

    @cached_property
    def loaded_tiles(self) -> int:
        """Tiles of a unit that a warp loads while it waits for x."""
        return loaded_tiles(self.graph, self.target, self.knobs)

    def down_pieces(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Column ranges in which an SM multiplies a part of down."""
        return down_pieces(begin, end, pieces_of(self.graph, self.sms, self.knobs), self.knobs)
