"""Where a worker's latencies come from: a GPU, or the cost model. The two are never mixed in one journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from amk.emit import CompiledKernel, compile_cubin, emit_source
from amk.errors import DeviceError
from amk.model.source import Model
from amk.runtime.machine import Launch, Machine
from amk.verify.rig import CpuRig, Rig
from autoresearch.spacer import GpuSpacer, NoSpacer, Spacer
from autoresearch.telemetry import Telemetry
from autoresearch.workload import Point
from schedule_ir import Tables
from schedule_ir.program import Program
from schedule_ir.target import Target

if TYPE_CHECKING:
    from amk.runtime.cuda import CudaMachine

ENERGY_SECONDS = 1.5
SHOWN = 10
"""Lines of a timeline's tables that are worth telling."""


@dataclass(frozen=True)
class Build:
    """A candidate ready to run."""

    tables: Tables
    program: Program
    cubin: bytes


class Prediction(Protocol):
    """What the cost model says of one token."""

    @property
    def ms_per_token(self) -> float:
        """Predicted latency."""


Predict = Callable[[Program, int], Prediction]
CompileSource = Callable[[str, Target], CompiledKernel]


class Engine(Protocol):
    """Loads and times builds."""

    def rig(self, build: Build, model: Model) -> Rig:
        """What the gates run on."""

    def prepare(self, build: Build) -> None:
        """Compile ahead what the gates will need beside the kernel itself."""

    def spacer(self, share: float) -> Spacer:
        """Take memory, so that what is loaded next lies elsewhere; `share` in [0, 1) of the most. Never fails."""

    def settle(self, machine: Machine) -> None:
        """Before the first timing: make machines alike that have done different things."""

    def exchangeable(self, first: Build, second: Build) -> bool:
        """Whether they are two kernels that can run over the same loaded weights."""

    def select(self, build: Build, machine: Machine) -> None:
        """Have a machine run this build from now on: its own, or one that is exchangeable with it."""

    def time(self, build: Build, machine: Machine | None, point: Point) -> float:
        """ms per token at a point of the workload."""

    @property
    def needs_machine(self) -> bool:
        """Whether timing needs a loaded machine."""

    def clocks(self) -> tuple[dict[str, Any], bool]:
        """(reading of the GPU, whether it spoils a timing)."""

    def joules_per_token(self, machine: Machine | None, point: Point) -> float | None:
        """Energy, where there is a counter."""

    def probe(self) -> dict[str, Any]:
        """Whether the device answers. Raises DeviceError if not."""

    def timeline(self, build: Build, model: Model, pos: int) -> dict[str, Any]:
        """Where the time of a token goes: by lane and hand-off, as far as this engine knows."""


class GpuEngine:
    """Measures on the first GPU."""

    needs_machine = True

    def __init__(self, compile_source: CompileSource = compile_cubin) -> None:
        self._compile = compile_source

    @cached_property
    def _telemetry(self) -> Telemetry:
        """Opened when first asked: a worker that waits for its turn leaves the driver alone."""
        return Telemetry()

    @cached_property
    def _context(self) -> Any:
        """The primary context, held until the process ends: without a holder every load would make it anew."""
        from amk.runtime.cuda.driver import call, driver

        call(driver().cuInit, 0)
        return call(driver().cuDevicePrimaryCtxRetain, call(driver().cuDeviceGet, 0))

    def rig(self, build: Build, model: Model) -> Rig:
        """A CUDA rig."""
        from amk.verify.cuda_rig import CudaRig

        _ = self._context  # from the first machine on
        return CudaRig(build.tables, build.cubin, model, compile_source=self._compile)

    def prepare(self, build: Build) -> None:
        """The kernel with injected delays, into the cache."""
        self._compile(emit_source(build.program, delays=True), build.program.target)

    def spacer(self, share: float) -> Spacer:
        """In the memory of the first GPU."""
        return GpuSpacer(self._context, share)

    def settle(self, machine: Machine) -> None:
        """The same random K/V for everyone: rows of zeros draw less power than real ones."""
        from autoresearch.kv_fill import fill_kv

        fill_kv(machine)

    def exchangeable(self, first: Build, second: Build) -> bool:
        """Not a build and itself: that comparison is about what loading anew does."""
        from amk.runtime.cuda.exchange import difference

        same = first.cubin == second.cubin and np.array_equal(first.tables.records, second.tables.records)
        return not same and difference(first.tables, second.tables) is None

    def select(self, build: Build, machine: Machine) -> None:
        """Exchange the kernel."""
        _on_gpu(machine).use_kernel(build.tables, build.cubin)

    def time(self, build: Build, machine: Machine | None, point: Point) -> float:  # noqa: ARG002
        """Event time of one launch, per token."""
        result = _decode(machine, point)
        assert machine is not None
        return _on_gpu(machine).last_launch_ms / result

    def clocks(self) -> tuple[dict[str, Any], bool]:
        """From NVML."""
        reading = self._telemetry.read()
        return reading, self._telemetry.spoiled(reading)

    def joules_per_token(self, machine: Machine | None, point: Point) -> float | None:
        """Energy counter over some seconds of decoding."""
        before, started, tokens = self._telemetry.millijoules(), time.monotonic(), 0
        while time.monotonic() - started < ENERGY_SECONDS:
            tokens += _decode(machine, point)
        after = self._telemetry.millijoules()
        return None if before is None or after is None else (after - before) / 1e3 / tokens

    def probe(self) -> dict[str, Any]:
        """Make a context and ask for its memory."""
        from amk.device import driver_version, first_device, memory

        device = first_device()
        return {
            "device": device.name,
            "arch": device.arch,
            "sms": device.sms,
            "free_bytes": memory(device.index).free_bytes,
            "driver": self._telemetry.driver(),
            "cuda": ".".join(map(str, driver_version())),
        }

    def timeline(self, build: Build, model: Model, pos: int) -> dict[str, Any]:
        """From the clocks of a traced launch: the tasks that work longest, and the hand-offs that are waited for."""
        from amk.artifact import Artifact
        from amk.bench.timeline import Timeline
        from amk.bench.timeline_text import summary_of
        from amk.runtime.cuda.trace import collect

        data = collect(Artifact(Path(), {}, build.tables, "", build.cubin, {}), model, pos)
        made = Timeline.of(build.program, data.events, data.counts, data.anchors, data.milliseconds, pos)
        summary = summary_of(made).as_dict()
        lanes = sorted(summary["lanes"], key=lambda row: -(row["work_us"] + row["wait_us"]))
        waits = sorted(summary["hand_offs"], key=lambda row: -row["times"] * row["wait_us"])
        longest = {"lanes": lanes[:SHOWN], "hand_offs": waits[:SHOWN]}
        return {"available": True, "pos": pos, "token_us": summary["token_us"], **longest}


def _on_gpu(machine: Machine) -> CudaMachine:
    """What the GPU engine's rigs load."""
    return cast("CudaMachine", machine)


def _decode(machine: Machine | None, point: Point) -> int:
    """Decode the point's tokens; how many there were."""
    if machine is None:
        raise DeviceError("nothing is loaded; ask for load first")
    launch = Launch(point.pos, [17 % machine.vocab], point.steps, 0)
    return machine.run(launch, lambda _: None).steps_done


class ModelEngine:
    """Predicts with the cost model; runs the gates on the CPU runtime."""

    needs_machine = False

    def __init__(self, predict: Predict | None = None) -> None:
        self._predict = predict
        self._known: dict[tuple[int, int], Prediction] = {}

    def rig(self, build: Build, model: Model) -> Rig:
        """A CPU rig."""
        return CpuRig(build.tables, model)

    def prepare(self, build: Build) -> None:
        """Nothing: the CPU runtime has one thread to delay."""

    def spacer(self, share: float) -> Spacer:  # noqa: ARG002
        """Nothing: a prediction has no addresses."""
        return NoSpacer()

    def settle(self, machine: Machine) -> None:
        """Nothing: no machine is timed."""

    def exchangeable(self, first: Build, second: Build) -> bool:  # noqa: ARG002
        """Nothing is loaded."""
        return False

    def select(self, build: Build, machine: Machine) -> None:
        """Nothing: every side has its own machine."""

    def _prediction(self, program: Program, pos: int) -> Prediction:
        if self._predict is None:
            from amk.cost import predict

            self._predict = predict
        key = id(program), pos  # a worker holds its two programs until it ends
        if key not in self._known:
            self._known[key] = self._predict(program, pos)
        return self._known[key]

    def time(self, build: Build, machine: Machine | None, point: Point) -> float:  # noqa: ARG002
        """Predicted ms per token in the middle of the point's tokens."""
        return self._prediction(build.program, point.pos + point.steps // 2).ms_per_token

    def clocks(self) -> tuple[dict[str, Any], bool]:
        """There is nothing to read."""
        return {}, False

    def joules_per_token(self, machine: Machine | None, point: Point) -> float | None:  # noqa: ARG002
        """Not predicted."""
        return None

    def probe(self) -> dict[str, Any]:
        """Always there."""
        return {"device": "cost model"}

    def timeline(self, build: Build, model: Model, pos: int) -> dict[str, Any]:  # noqa: ARG002
        """The parts of the prediction."""
        prediction = self._prediction(build.program, pos)
        names = ("ms_per_token", "stream_ms", "chain_ms", "imbalance", "waits_us")
        parts = {name: getattr(prediction, name) for name in names if hasattr(prediction, name)}
        return {"available": True, "predicted": True, "pos": pos, **{name: _plain(x) for name, x in parts.items()}}


def _plain(value: Any) -> Any:
    """A number or a mapping of numbers as JSON data."""
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, Mapping) else round(float(value), 6)
