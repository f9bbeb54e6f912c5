"""What the gates run on: a Program and its kernel, loaded with this or that model, guarded or plain."""

from __future__ import annotations

from typing import Protocol

from amk.model.source import Model
from amk.progress import SILENT, Progress
from amk.runtime.cpu import CpuMachine
from amk.runtime.machine import Machine
from schedule_ir import Tables, decode
from schedule_ir.program import Program


class Rig(Protocol):
    """A Program on a GPU or on the CPU runtime. Methods that do not apply return None."""

    @property
    def kind(self) -> str:
        """ "cuda" or "cpu"."""

    @property
    def program(self) -> Program:
        """What the tables say."""

    @property
    def model(self) -> Model:
        """The model that it is for."""

    def machine(self, model: Model | None = None, fill: int | None = None) -> Machine:
        """A loaded machine (of another model of the same graph). With `fill`, its memory is surrounded by, and
        starts as, bytes of this value."""

    def overwritten(self, machine: Machine) -> list[str] | None:
        """Which guards around its buffers a machine made with `fill` has overwritten."""

    def constants_digest(self, machine: Machine) -> str | None:
        """Hash of everything that no launch may change: weights, norms, biases, tables."""

    def poison_kv(self, machine: Machine, fill: int) -> bool:
        """Set every byte of the K/V cache; False where that does not apply."""

    def delayed(self) -> Machine | None:
        """A machine whose lanes wait at random, if the kernels have such a switch."""

    def ms_per_token(self, machine: Machine, pos: int, steps: int) -> float | None:
        """Measured latency of `steps` tokens from `pos` on; None where nothing real can be measured."""


class CpuRig:
    """The CPU runtime, which executes the same device tables: it has no memory to guard and no time to measure."""

    kind = "cpu"

    def __init__(self, tables: Tables, model: Model, progress: Progress = SILENT) -> None:
        self.tables, self.model, self.program = tables, model, decode(tables)
        self._progress = progress

    def machine(self, model: Model | None = None, fill: int | None = None) -> Machine:  # noqa: ARG002
        """A CPU machine."""
        return CpuMachine(self.tables, model or self.model, self._progress)

    def overwritten(self, machine: Machine) -> list[str] | None:  # noqa: ARG002
        """Does not apply: NumPy checks its bounds."""
        return None

    def constants_digest(self, machine: Machine) -> str | None:  # noqa: ARG002
        """Does not apply: the weights are unpacked copies."""
        return None

    def poison_kv(self, machine: Machine, fill: int) -> bool:  # noqa: ARG002
        """Does not apply."""
        return False

    def delayed(self) -> Machine | None:
        """Does not apply: one thread."""
        return None

    def ms_per_token(self, machine: Machine, pos: int, steps: int) -> float | None:  # noqa: ARG002
        """Does not apply."""
        return None
