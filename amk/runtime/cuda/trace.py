"""Collects a timeline: a traced build of the same schedule, a few tokens, every task's clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from amk.artifact import Artifact
from amk.emit.compile import compile_cubin
from amk.emit.source import TRACE_EVENTS, emit_source
from amk.model.source import Model
from amk.progress import SILENT, Progress
from amk.runtime.cuda.driver import to_host
from amk.runtime.cuda.machine import CudaMachine
from amk.runtime.machine import Launch
from schedule_ir.codec import LANES


@dataclass(frozen=True)
class TraceData:
    """`events` int64 [sms, 3 lanes, events, 4]: record | step << 32, begin, begin + waited, end, in SM clocks;
    `counts` [sms, 3] of them are filled; `anchors` [sms, 3, 2]: clock and global timer (ns) at the lane's start.
    """

    events: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    anchors: npt.NDArray[np.int64]
    milliseconds: float


def collect(artifact: Artifact, model: Model, pos: int = 0, steps: int = 4, progress: Progress = SILENT) -> TraceData:
    """Run `steps` tokens from `pos` with the timeline on; the launch before warms up. Raises DeviceError."""
    program = artifact.program
    kernel = compile_cubin(emit_source(program, trace=True), program.target)
    machine = CudaMachine(artifact.tables, kernel.cubin, model, progress)
    try:
        launch = Launch(pos, [0], steps, 0)
        machine.run(launch, lambda _: None)
        address = machine.set_trace(TRACE_EVENTS)
        machine.run(launch, lambda _: None)
        raw = np.zeros((program.sms, len(LANES), TRACE_EVENTS + 1, 4), np.int64)
        to_host(raw, address)
        return TraceData(raw[:, :, 1:], raw[:, :, 0, 2], raw[:, :, 0, :2], machine.last_launch_ms)
    finally:
        machine.close()
