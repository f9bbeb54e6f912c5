"""The bytes of device memory that a token cannot do without: what percentages of the read ceiling refer to."""

from __future__ import annotations

from dataclasses import dataclass

from schedule_ir.program import Program

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
    weights = sum(sum(t.rows) * (t.columns[1] - t.columns[0]) for t in program.tiles) * WEIGHT_BYTES
    return Work(weights, (pos + (steps - 1) / 2) * kv_row_bytes(program))


def kv_row_bytes(program: Program) -> int:
    """K and V of one position in all layers."""
    c = program.config
    return 2 * c["layers"] * c["kv_heads"] * c["head_dim"] * c["kv_element_bytes"]
