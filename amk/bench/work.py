"""The bytes of device memory that a token cannot do without: what percentages of the read ceiling refer to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from amk.tape import PADDING, row_table
from schedule_ir.program import Program, TensorTiles

WEIGHT_BYTES = 2


@dataclass(frozen=True)
class Work:
    """Bytes read per token: every weight once, and the cached K and V rows."""

    weights: int
    kv: float

    @property
    def total(self) -> float:
        """Bytes in all."""
        return self.weights + self.kv

    def percent_of(self, bytes_per_second: float, milliseconds: float) -> float:
        """How much of a bandwidth is used where a token takes `milliseconds`."""
        return 100 * self.floor_ms(bytes_per_second) / milliseconds

    def floor_ms(self, bytes_per_second: float) -> float:
        """Milliseconds per token at a bandwidth."""
        return self.total / bytes_per_second * 1e3


def work_of(program: Program, pos: int, steps: int = 1) -> Work:
    """Mean over `steps` tokens from `pos`. Padding of tiles and blocks is the schedule's waste and does not count."""
    weights = sum(_rows_of(tiles) * (tiles.columns[1] - tiles.columns[0]) for tiles in program.tiles) * WEIGHT_BYTES
    return Work(weights, (pos + (steps - 1) / 2) * kv_row_bytes(program))


def _rows_of(tiles: TensorTiles) -> int:
    """Rows of the tensors that lie in these tiles, which may be a band of a matrix only."""
    return sum(int(np.count_nonzero(row_table(tiles, index) != PADDING)) for index in range(len(tiles.tensors)))


def kv_row_bytes(program: Program) -> int:
    """K and V of one position in all layers."""
    c = program.config
    return 2 * c["layers"] * c["kv_heads"] * c["head_dim"] * c["kv_element_bytes"]
