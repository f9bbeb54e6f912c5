"""The gates run on an artifact folder."""

from __future__ import annotations

from pathlib import Path

from amk.artifact import read_artifact
from amk.errors import UsageError
from amk.gpus import lookup
from amk.progress import Progress
from amk.runtime.load import DEVICES, fits_gpu, open_checkpoint
from amk.verify.gates import GateResult, Level, make_bench, run_gates
from amk.verify.replay import replay_digest
from amk.verify.rig import CpuRig, Rig
from schedule_ir.target import Target


def verify_artifact(directory: Path, device: str, quick: bool, seed: int, progress: Progress) -> list[GateResult]:
    """Run the gates (the quick ones only, or all). Raises AmkError where the artifact cannot be opened."""
    rig = open_rig(directory, device, progress)
    machine = rig.machine()
    try:
        bandwidth = data_sheet_bandwidth(rig.program.target)
        bench = make_bench(rig, machine, seed, bandwidth, replay=lambda _: replay_digest(directory, rig.kind, seed))
        with progress.step("Running the gates"):
            return run_gates(bench, [Level.QUICK] if quick else [Level.QUICK, Level.FULL])
    finally:
        machine.close()


def open_rig(directory: Path, device: str, progress: Progress) -> Rig:
    """The rig of an artifact on the GPU or the CPU."""
    if device not in DEVICES:
        raise UsageError(f"device {device!r} is not one of {', '.join(DEVICES)}")
    artifact = read_artifact(directory)
    model = open_checkpoint(artifact, progress)
    if device == "cuda" or (device == "auto" and fits_gpu(artifact)):
        from amk.verify.cuda_rig import CudaRig

        return CudaRig(artifact.tables, artifact.cubin, model, progress)
    return CpuRig(artifact.tables, model, progress)


def data_sheet_bandwidth(target: Target) -> float:
    """Bytes per second that no read exceeds: the data sheet's, or a little over the measured one."""
    try:
        return max(target.bandwidth, lookup(target.name).bandwidth_gb_s * 1e9)
    except UsageError:
        return target.bandwidth * 1.05
