"""A worker in measured mode whose GPU is the CPU runtime: everything of the measured path but the device itself.

    python rehearsal_worker.py LOG --parent PID

Latency is a formula of the schedule with a little noise. Every use of the "device" is logged as [method, begin, end],
in seconds of a clock that processes share.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amk.emit import CompiledKernel
from amk.model.source import Model
from amk.runtime.cpu import CpuMachine
from amk.runtime.cuda.trace import TraceData
from amk.runtime.machine import Launch, LaunchResult, Machine
from amk.verify import CpuRig
from autoresearch.engine import Build, GpuEngine
from autoresearch.rungs import Rungs
from autoresearch.spacer import NoSpacer
from autoresearch.worker import serve
from schedule_ir import Tables, decode
from schedule_ir.program import Program
from tests.bench.traced import Player, clocks

ON_DEVICE = ("smoke", "gates", "load", "block", "energy", "machine", "timeline", "probe")
RESOURCES = {"registers": 128, "stack_bytes": 0, "spill_bytes": 0}


def compile_source(source: str, target: Any) -> CompiledKernel:
    """A kernel that nobody runs."""
    return CompiledKernel(source.encode(), "13.0", "", RESOURCES)


class RehearsalMachine(CpuMachine):
    """Decodes on the CPU, and says that it took as long as the formula has it."""

    def __init__(self, tables: Tables, model: Model) -> None:
        super().__init__(tables, model)
        self.last_launch_ms = 0.0
        self._random = random.Random(str(tables.header["config"]))
        self.use_kernel(tables, b"")

    def use_kernel(self, tables: Tables, cubin: bytes) -> None:  # noqa: ARG002
        self._ms = 1.0 - 0.03 * tables.header["config"]["in_flight"]

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        short = Launch(launch.start_pos, launch.given, 1, 0) if not launch.want_logits else launch
        result = super().run(short, on_token)
        self.last_launch_ms = result.steps_done * self._ms * (1 + self._random.gauss(0, 0.001))
        return result


class RehearsalRig(CpuRig):
    """Says that it is a GPU, and that its guards are whole."""

    kind = "cuda"

    def machine(self, model: Model | None = None, fill: int | None = None) -> Machine:  # noqa: ARG002
        return RehearsalMachine(self.tables, model or self.model)

    def overwritten(self, _: Machine) -> list[str] | None:
        return []

    def constants_digest(self, _: Machine) -> str | None:
        return "the same"

    def poison_kv(self, *_: Any) -> bool:
        return True

    def delayed(self) -> Machine | None:
        return self.machine()

    def ms_per_token(self, machine: Machine, pos: int, steps: int) -> float | None:
        machine.run(Launch(pos, [17], steps, 0), lambda _: None)
        return 1.0


class RehearsalTelemetry:
    """Readings of a GPU at ease."""

    def __init__(self) -> None:
        self._millijoules = 0

    def read(self) -> dict[str, Any]:
        return {"sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 40, "throttle": 0}

    def spoiled(self, reading: dict[str, Any]) -> bool:
        return bool(reading["throttle"])

    def millijoules(self) -> int | None:
        self._millijoules += 1000
        return self._millijoules

    def driver(self) -> str | None:
        return "580.0"


class RehearsalEngine(GpuEngine):
    """The GPU engine over all of this."""

    def __init__(self) -> None:
        super().__init__(compile_source)
        self.__dict__["_telemetry"] = RehearsalTelemetry()

    def rig(self, build: Build, model: Model) -> CpuRig:
        return RehearsalRig(build.tables, model)

    def spacer(self, share: float) -> NoSpacer:
        assert 0 <= share < 1
        return NoSpacer()

    def settle(self, machine: Machine) -> None:
        assert isinstance(machine, RehearsalMachine)

    def probe(self) -> dict[str, Any]:
        return {"device": "rehearsal", "arch": "sm_90", "driver": "580.0"}


def collect(artifact: Any, model: Model, pos: int) -> TraceData:
    """A timeline of the schedule, played."""
    program: Program = decode(artifact.tables)
    return TraceData(*clocks(program, Player(program).play(2), 4096))


class Logged:
    """The worker's methods, with a line for every use of the device."""

    def __init__(self, log: Path) -> None:
        self._log, self._rungs = log, Rungs(RehearsalEngine(), lambda program: compile_source("", program.target))

    def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        try:
            return self._rungs.call(method, params)
        finally:
            if method in ON_DEVICE:
                with self._log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([method, began, time.monotonic()]) + "\n")


def main(log: str) -> None:
    import amk.runtime.cuda.trace as trace
    import autoresearch.engine as engine

    engine.ENERGY_SECONDS = 0.05
    trace.collect = collect  # type: ignore[assignment]
    serve(Logged(Path(log)).call)


if __name__ == "__main__":
    main(sys.argv[1])
