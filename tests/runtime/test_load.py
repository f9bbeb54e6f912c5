"""Opening an artifact: the machine it gets, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import amk
from amk.artifact import write_artifact
from amk.device import Device
from amk.errors import ArtifactError, DeviceError, RejectedProgramError, UsageError
from amk.model.source import Model, open_model
from amk.progress import SILENT, SilentProgress
from amk.runtime.cpu import CpuMachine
from amk.runtime.load import open_artifact
from schedule_ir import encode
from tests.runtime.models import machine_of, program_of, save_model, tokens_of


def make_artifact(folder: Path, model: Model, seed: int | None = None, **changes: Any) -> Path:
    """An artifact without a kernel, which the CPU runtime does not need."""
    manifest = {
        "build": {"model_digest": model.checkpoint.digest, "graph_digest": model.graph.digest},
        "model": {"path": str(model.path), "random_seed": seed},
    } | changes
    return write_artifact(folder, manifest, encode(program_of(model)), "", b"", {}).path


@pytest.fixture
def model(tmp_path: Path) -> Model:
    save_model(tmp_path / "model")
    return open_model(tmp_path / "model")


def test_load_runs_on_the_cpu(tmp_path: Path, model: Model) -> None:
    artifact = make_artifact(tmp_path / "artifact", model)
    ids = tokens_of(5)
    with amk.load(artifact, device="cpu", unsafe=True) as session:
        tokens = session.generate(ids, 4).token_ids
    machine, _ = machine_of(model.path)
    from amk.runtime.session import Session

    assert tokens == Session(machine, model.graph).generate(ids, 4).token_ids


def test_auto_is_the_cpu_where_no_gpu_fits(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu() -> None:
        raise DeviceError("no GPU")

    monkeypatch.setattr("amk.runtime.load.devices", no_gpu)
    machine, _ = open_artifact(make_artifact(tmp_path / "artifact", model), "auto", SILENT, unsafe=True)
    assert isinstance(machine, CpuMachine)


def test_a_gpu_that_does_not_fit_is_named(tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    a100 = Device(0, "NVIDIA A100", "sm_80", 108, 166912, 40 << 20, 40 << 30, 1555.0, True, False)
    monkeypatch.setattr("amk.runtime.load.devices", lambda: (a100,))
    titles: list[str] = []

    class Titles(SilentProgress):
        def step(self, title: str, total: int | None = None) -> Any:
            titles.append(title)
            return super().step(title, total)

    machine, _ = open_artifact(make_artifact(tmp_path / "out", model), "auto", Titles(), unsafe=True)
    assert isinstance(machine, CpuMachine)
    assert "Loading onto the CPU (NVIDIA A100, sm_80, does not fit an artifact for h200, sm_90)" in titles


def test_random_weights_are_those_of_the_seed(tmp_path: Path, model: Model) -> None:
    random = open_model(model.path, random_seed=7)
    artifact = make_artifact(tmp_path / "artifact", random, seed=7)
    with amk.load(artifact, device="cpu", unsafe=True) as session:
        assert len(session.generate([1, 2], 3).token_ids) == 3


def test_a_changed_checkpoint_is_refused(tmp_path: Path, model: Model) -> None:
    artifact = make_artifact(tmp_path / "artifact", model)
    save_model(model.path, num_attention_heads=8)
    with pytest.raises(ArtifactError, match="changed since"):
        amk.load(artifact, device="cpu", unsafe=True)


def test_a_missing_checkpoint_is_refused(tmp_path: Path, model: Model) -> None:
    artifact = make_artifact(tmp_path / "artifact", model)
    model.path.rename(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match="its checkpoint cannot be opened"):
        amk.load(artifact, device="cpu", unsafe=True)


def test_what_is_not_proved_is_refused(tmp_path: Path, model: Model) -> None:
    artifact = make_artifact(tmp_path / "artifact", model)
    with pytest.raises(RejectedProgramError, match="not proved: certificate validator is None"):
        amk.load(artifact, device="cpu")


def test_an_unknown_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'tpu' is not one of auto, cuda, cpu"):
        amk.load(tmp_path, device="tpu")
