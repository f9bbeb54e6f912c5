"""The units of a matrix: on the stream lane copied, on the compute lane multiplied, on the epilogue lane published."""

from __future__ import annotations

from collections.abc import Callable

from amk.lower.builder import Builder
from amk.lower.setting import GATED_ROWS, Setting
from amk.lower.sizes import Matrix, matrix, unit_rows
from amk.lower.vectors import Vectors
from amk.model.graph import Linear
from schedule_ir.layout import TILE_ROWS, ceil_to, ksteps
from schedule_ir.program import TensorTiles


class Linears:
    """Emits the tasks of matrices."""

    def __init__(self, setting: Setting, build: Builder, vectors: Vectors) -> None:
        self._setting, self._build, self._vectors = setting, build, vectors

    def whole(
        self, name: str, linears: tuple[Linear, ...], phase: int, mailbox: int, *, scaled: bool = False,
        gated: bool = False, gather: tuple[int, int] | None = None, columns: tuple[int, int] | None = None,
        biased: bool = True, rows: int = TILE_ROWS, before_last: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """The units of one matrix, or of some of its columns, of `rows` rows if they can be. x is gathered first where
        `gather` says from which packet and how many. `before_last` is called with each SM before its last unit.
        """
        tiles, shape = self.place(name, linears, columns, gated, rows)
        bias = self._vectors.bias(linears, gated) if biased else None
        per_unit = GATED_ROWS if gated else shape.rows
        gathered: set[int] = set()
        for unit, sm in enumerate(tiles.sms):
            if gather and sm not in gathered:
                gathered.add(sm)
                self._build.add(sm, "gather", (shape.ksteps, gather[1]), src=gather[0], phase=phase)
            if before_last and unit + self._setting.sms >= len(tiles.sms):
                before_last(sm)
            self.multiply(sm, tiles, shape, unit)
            self._publish(sm, mailbox + unit * per_unit, phase, bias, unit, shape.rows, scaled=scaled, gated=gated)

    def in_pieces(
        self, name: str, down: Linear, phase: int, mailbox: int, pieces: list[tuple[int, int]], *, source: int,
        biased: bool,
    ) -> None:  # fmt: skip
        """Units of down that every SM multiplies piece by piece, sums parked in between, published after the last.

        x is the MLP's mailbox at `source`. The first pieces are there while the last rows of the MLP are still on their
        way, and x is a piece long.
        """
        rows = self._setting.down_rows
        owners = self._build.deal(-(-self._setting.graph.hidden // rows))
        bias = self._vectors.bias((down,), False) if biased else None
        for number, (begin, end) in enumerate(pieces):
            tiles, shape = self.place(f"{name}.{number}", (down,), (begin, end), False, rows, owners)
            for sm in sorted(set(owners)):
                self._build.add(sm, "gather", (shape.ksteps, end - begin), src=source + begin, phase=phase)
            for unit, sm in enumerate(owners):
                self._copy(sm, tiles, shape, unit)
                size = (shape.atoms, shape.chunk, shape.rows)
                if end < pieces[-1][1]:
                    self._build.add(sm, "gemv_park", (*size, int(number > 0)), accumulator=unit // self._setting.sms)
                    continue
                self._build.add(sm, "gemv_resume", size, accumulator=unit // self._setting.sms)
                self._publish(sm, mailbox + unit * rows, phase, bias, unit, rows)

    def place(
        self, name: str, linears: tuple[Linear, ...], columns: tuple[int, int] | None, interleaved: bool,
        unit: int = TILE_ROWS, owners: list[int] | None = None,
    ) -> tuple[TensorTiles, Matrix]:  # fmt: skip
        """Deal the units of a matrix, of `unit` rows if they can be, to SMs (or to `owners`), and put them on tapes."""
        rows = tuple(linear.weight.shape[0] for linear in linears)
        begin, end = columns or (0, linears[0].weight.shape[1])
        packed = len(rows) * ceil_to(rows[0], GATED_ROWS) if interleaved else sum(rows)
        knobs = self._setting.knobs
        shape = matrix(packed, end - begin, knobs, unit_rows(unit, [ksteps(end - begin)], knobs))
        names = tuple(linear.weight.name for linear in linears)
        owners = owners or self._build.deal(shape.units)
        return self._build.place(name, names, rows, (begin, end), shape, owners, interleaved), shape

    def _copy(self, sm: int, tiles: TensorTiles, shape: Matrix, unit: int) -> None:
        self._build.add(sm, "copy_tape", (shape.atoms, shape.chunk), offset=tiles.offsets[unit])

    def multiply(self, sm: int, tiles: TensorTiles, shape: Matrix, unit: int) -> None:
        """Copy a unit and multiply it with x."""
        self._copy(sm, tiles, shape, unit)
        self._build.add(sm, "gemv", (shape.atoms, shape.chunk, shape.rows))

    def _publish(
        self, sm: int, target: int, phase: int, bias: int | None, unit: int, rows: int, *, scaled: bool = False,
        gated: bool = False,
    ) -> None:  # fmt: skip
        self._build.add(
            sm, "publish", (int(scaled), int(gated), int(bias is not None), rows),
            dst=target, phase=phase, bias=0 if bias is None else bias + unit * rows,
        )  # fmt: skip
