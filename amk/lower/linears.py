"""The units of a matrix: on the stream lane copied, on the compute lane multiplied, on the epilogue lane published."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from amk.lower.builder import Builder
from amk.lower.setting import GATED_ROWS, Setting
from amk.lower.sizes import Band, Matrix, bands, matrix
from amk.model.graph import Linear
from schedule_ir.layout import TILE_ROWS, ceil_to, ksteps

Columns = tuple[int, int]


class Unit(NamedTuple):
    """A unit of `shape` at atom `offset` of the tape of `sm`; its first packed row is `row`. `bulk`: of gate/up or the
    head.
    """

    sm: int
    row: int
    offset: int
    shape: Matrix
    bulk: bool


class Linears:
    """Emits the tasks of matrices."""

    def __init__(self, setting: Setting, build: Builder) -> None:
        self._setting, self._build = setting, build

    def emit(
        self, units: list[Unit], phase: int, mailbox: int, bias: int | None, *, scaled: bool = False,
        gated: bool = False, gather: tuple[int, int] | None = None, before_last: Callable[[int], None] | None = None,
    ) -> None:  # fmt: skip
        """The tasks of the units of a matrix. x is gathered first where `gather` says from which packet and how many.
        `before_last` is called with each SM before its last unit.
        """
        gathered: set[int] = set()
        last = {unit.sm: number for number, unit in enumerate(units)}
        for number, unit in enumerate(units):
            if gather and unit.sm not in gathered:
                gathered.add(unit.sm)
                self._build.add(unit.sm, "gather", (unit.shape.ksteps, gather[1]), src=gather[0], phase=phase)
            if before_last and last[unit.sm] == number:
                before_last(unit.sm)
            self.multiply(unit)
            self._publish(unit, mailbox, phase, bias, scaled=scaled, gated=gated)

    def in_pieces(
        self, name: str, down: Linear, phase: int, mailbox: int, bias: int | None, pieces: list[Columns], source: int,
        owners: list[int],
    ) -> None:  # fmt: skip
        """Units of down that `owners` multiply piece by piece, sums parked in between, published after the last.

        x is the MLP's mailbox at `source`. The first pieces are there while the last rows of the MLP are still on their
        way, and x is a piece long.
        """
        for number, (begin, end) in enumerate(pieces):
            units = self.place_on(owners, f"{name}.{number}", (down,), (begin, end), self._setting.bands_of_down)
            for sm in sorted(set(owners)):
                self._build.add(sm, "gather", (ksteps(end - begin), end - begin), src=source + begin, phase=phase)
            for at, unit in enumerate(units):
                self._copy(unit)
                size, place = (unit.shape.atoms, unit.shape.chunk, unit.shape.rows), at // self._setting.sms
                if end < pieces[-1][1]:
                    self._build.add(unit.sm, "gemv_park", (*size, int(number > 0)), accumulator=place)
                    continue
                self._build.add(unit.sm, "gemv_resume", size, accumulator=place)
                self._publish(unit, mailbox, phase, bias)

    def place(
        self, name: str, linears: tuple[Linear, ...], *, interleaved: bool = False, rows: int = TILE_ROWS,
        bulk: bool = False,
    ) -> list[Unit]:  # fmt: skip
        """Deal the units of a matrix to SMs, and put them on tapes; `rows` is what `bands` is asked for."""
        outputs = [linear.weight.shape[0] for linear in linears]
        columns = 0, linears[0].weight.shape[1]
        packed = len(outputs) * ceil_to(outputs[0], GATED_ROWS) if interleaved else sum(outputs)
        shared_out = bands(packed, rows, [ksteps(columns[1])], self._setting.sms, self._setting.knobs)
        owners = self._build.deal(sum(band.units for band in shared_out))
        return self.place_on(owners, name, linears, columns, shared_out, interleaved=interleaved, bulk=bulk)

    def place_on(
        self, owners: list[int], name: str, linears: tuple[Linear, ...], columns: Columns, shared_out: Sequence[Band],
        *, interleaved: bool = False, bulk: bool = False,
    ) -> list[Unit]:  # fmt: skip
        """Put the units of some columns of a matrix, which is shared out in these bands, on the tapes of `owners`."""
        names = tuple(linear.weight.name for linear in linears)
        outputs = tuple(linear.weight.shape[0] for linear in linears)
        units: list[Unit] = []
        for number, band in enumerate(shared_out):
            shape = matrix(columns[1] - columns[0], self._setting.knobs, band.rows)
            sms = owners[len(units) : len(units) + band.units]
            label = f"{name}.rest" if number else name
            tiles = self._build.place(label, names, outputs, columns, shape, sms, band.first, interleaved)
            rows = range(band.first, band.first + band.units * band.rows, band.rows)
            units += [Unit(*place, shape, bulk) for place in zip(sms, rows, tiles.offsets, strict=True)]
        return units

    def _copy(self, unit: Unit) -> None:
        limit = self._setting.bulk_in_flight if unit.bulk else self._setting.in_flight
        self._build.add(
            unit.sm, "copy_tape", (unit.shape.atoms, unit.shape.chunk),
            offset=unit.offset, in_flight=limit.most, stocked=limit.stocked,
        )  # fmt: skip

    def multiply(self, unit: Unit) -> None:
        """Copy a unit and multiply it with x."""
        self._copy(unit)
        self._build.add(unit.sm, "gemv", (unit.shape.atoms, unit.shape.chunk, unit.shape.rows))

    def _publish(
        self, unit: Unit, mailbox: int, phase: int, bias: int | None, *, scaled: bool = False, gated: bool = False
    ) -> None:
        self._build.add(
            unit.sm, "publish", (int(scaled), int(gated), int(bias is not None), unit.shape.rows),
            dst=mailbox + (unit.row // 2 if gated else unit.row), phase=phase,
            bias=0 if bias is None else bias + unit.row,
        )  # fmt: skip
