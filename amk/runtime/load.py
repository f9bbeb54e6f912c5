"""From an artifact folder to a machine: the checkpoint it was built from, and a GPU that fits, or the CPU."""

from __future__ import annotations

import hashlib
from pathlib import Path

from amk.artifact import Artifact, read_artifact
from amk.device import devices
from amk.errors import AmkError, ArtifactError, DeviceError, RejectedProgramError, UsageError
from amk.model.source import Model, open_model
from amk.progress import Progress
from amk.runtime.machine import Machine

DEVICES = ("auto", "cuda", "cpu")


def open_artifact(directory: Path, device: str, progress: Progress, unsafe: bool = False) -> tuple[Machine, Model]:
    """The machine of an artifact, loaded, and its model. Raises as `amk.load` does."""
    if device not in DEVICES:
        raise UsageError(f"device {device!r} is not one of {', '.join(DEVICES)}")
    artifact = read_artifact(directory)
    if not unsafe:
        require_certificate(artifact)
    model = open_checkpoint(artifact, progress)
    if device == "cuda":
        devices()  # says what is missing where there is no GPU
    if device == "cuda" or (device == "auto" and fits_gpu(artifact)):
        from amk.runtime.cuda import CudaMachine

        return CudaMachine(artifact.tables, artifact.cubin, model, progress), model
    from amk.runtime.cpu import CpuMachine

    with progress.step(_why_on_cpu(artifact, device)):
        return CpuMachine(artifact.tables, model, progress), model


def _why_on_cpu(artifact: Artifact, device: str) -> str:
    """What is said of the choice: a GPU that is there and is not used wants an explanation."""
    try:
        gpu = devices()[0] if device == "auto" else None
    except DeviceError:
        gpu = None
    if gpu is None:
        return "Loading onto the CPU"
    target = artifact.program.target
    return f"Loading onto the CPU ({gpu.name}, {gpu.arch}, does not fit an artifact for {target.name}, {target.arch})"


def require_certificate(artifact: Artifact) -> None:
    """Raise RejectedProgramError unless the validator has proved these very tables and this cubin."""
    from validator import check_certificate

    broken = check_certificate(artifact.certificate, artifact.tables, hashlib.sha256(artifact.cubin).hexdigest())
    if broken:
        raise RejectedProgramError(f"{artifact.path}: not proved: {broken[0]}; unsafe=True (--unsafe) runs it anyway")


def open_checkpoint(artifact: Artifact, progress: Progress) -> Model:
    """The model that the artifact was built from. Raises ArtifactError if it is gone or not the same any more."""
    recorded = artifact.manifest["model"]
    path = recorded["path"]
    try:
        with progress.step("Checking the checkpoint"):
            model = open_model(Path(path), recorded["random_seed"])
            digests = {"model_digest": model.checkpoint.digest, "graph_digest": model.graph.digest}
    except AmkError as error:
        raise ArtifactError(f"{artifact.path}: its checkpoint cannot be opened: {error}") from error
    built = artifact.manifest["build"]
    for name, digest in digests.items():
        if digest != built.get(name):
            what = "weights" if name == "model_digest" else "config"
            raise ArtifactError(
                f"{path}: {what} changed since {artifact.path} was built from it; build the artifact again"
            )
    return model


def fits_gpu(artifact: Artifact) -> bool:
    """Whether the first GPU of this machine can run the artifact's kernel."""
    program = artifact.program
    try:
        gpu = devices()[0]
    except DeviceError:
        return False
    return gpu.arch == program.target.arch and gpu.sms >= program.sms and gpu.cooperative_launch
