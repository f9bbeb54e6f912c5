"""The whole pipe on a small model: build, cache, certificate, and the same numbers as transformers after a reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amk
import validator
from amk.artifact import read_artifact
from amk.code_digest import builder_sha256
from amk.errors import DeviceError, RejectedProgramError, UsageError
from amk.lower import Knobs
from amk.pipeline import DEFAULT_MAX_SEQ
from tests.model.builders import hf_model
from tests.small import VOCAB, small_artifact, small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("pipeline") / "model")


def stamp(path: Path) -> int:
    return (path / "manifest.json").stat().st_ino


@pytest.mark.parametrize("gpu", ["h200", "a10", "l4", "a100-80", "rtx5090"])
def test_logits_of_a_loaded_artifact(model: Path, tmp_path: Path, gpu: str) -> None:
    import torch

    small_artifact(model, tmp_path / "out", gpu=gpu, kv_dtype="fp32")
    ids = [int(i) for i in np.random.default_rng(0).integers(0, VOCAB, 30)]
    with amk.load(tmp_path / "out", device="cpu") as session, torch.no_grad():
        logits = session.logits(ids)
        expected = hf_model().bfloat16().float()(torch.tensor([ids])).logits[0].numpy()
    assert np.linalg.norm(logits - expected) / np.linalg.norm(expected) < 1e-4


def test_an_artifact_of_the_same_inputs_is_kept(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = small_artifact(model, out)
    before = stamp(out)
    second = small_artifact(model, out)
    assert stamp(out) == before
    assert second.cubin == first.cubin
    small_artifact(model, out, force=True)
    assert stamp(out) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu": "h100-sxm"},
        {"max_seq": 64},
        {"kv_dtype": "bf16"},
        {"knobs": Knobs(in_flight=Knobs().in_flight + 1)},
        {"random_weights": 1},
    ],
)
def test_an_artifact_of_other_inputs_is_replaced(model: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    out = tmp_path / "out"
    small_artifact(model, out)
    before = read_artifact(out).manifest["build"]
    small_artifact(model, out, **changes)
    assert read_artifact(out).manifest["build"] != before


def test_an_artifact_of_other_code_is_replaced(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    small_artifact(model, out)
    before = stamp(out)
    monkeypatch.setattr("amk.pipeline.builder_sha256", lambda: "another state of the checkout")
    small_artifact(model, out)
    assert stamp(out) != before


def test_the_hash_of_the_code_depends_on_every_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "linear.py").write_text("a")
    monkeypatch.setattr("amk.code_digest._folder", lambda _: tmp_path)
    first = builder_sha256.__wrapped__()
    (tmp_path / "ops" / "linear.py").write_text("b")
    assert builder_sha256.__wrapped__() != first


def test_a_damaged_artifact_is_built_again(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    small_artifact(model, out)
    (out / "kernel.cubin").write_bytes(b"damaged")
    small_artifact(model, out)
    assert len(read_artifact(out).cubin) > 1000


def test_builds_are_reproducible(model: Path, tmp_path: Path) -> None:
    first, second = (small_artifact(model, tmp_path / name) for name in ("a", "b"))
    assert first.manifest["sha256"]["kernel.cubin"] == second.manifest["sha256"]["kernel.cubin"]
    assert first.source == second.source
    np.testing.assert_array_equal(first.tables.records, second.tables.records)


def test_the_certificate_covers_the_artifact(model: Path, tmp_path: Path) -> None:
    artifact = small_artifact(model, tmp_path / "out")
    sha256 = artifact.manifest["sha256"]["kernel.cubin"]
    assert validator.check_certificate(artifact.certificate, artifact.tables, sha256) == []
    assert {o["status"] for o in artifact.certificate["obligations"]} == {"proved"}
    assert set(artifact.certificate["rules"]) == {str(number) for number in range(1, 13)}


def test_a_rejected_program_is_not_written(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = validator.Report(
        False, (validator.Violation(4, "race", "task 1\ntask 2"),), (), dict.fromkeys(_STATS, 0.0), ()
    )
    monkeypatch.setattr(validator, "validate", lambda *_, **__: rejected)
    with pytest.raises(RejectedProgramError, match=r"rule 4 \(races\): race"):
        small_artifact(model, tmp_path / "out")
    assert not list(tmp_path.iterdir())


_STATS = ("tasks", "lanes", "handoffs", "seconds")


def test_sequence_length(model: Path, tmp_path: Path) -> None:
    assert small_artifact(model, tmp_path / "a", max_seq=None).program.config["max_seq"] == 256
    with pytest.raises(UsageError, match="--max-seq 257"):
        small_artifact(model, tmp_path / "b", max_seq=257)
    long = small_model(tmp_path / "long", max_position_embeddings=2 * DEFAULT_MAX_SEQ)
    assert small_artifact(long, tmp_path / "c", max_seq=None).program.config["max_seq"] == DEFAULT_MAX_SEQ


def test_dynamic_rope_goes_beyond_the_trained_length(tmp_path: Path) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    model = small_model(tmp_path / "model", rope_parameters=rope)
    assert small_artifact(model, tmp_path / "out", max_seq=300).program.config["max_seq"] == 300


def test_default_folder_is_named_after_model_and_gpu(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert amk.build(model, gpu="h200", max_seq=16).path == Path("model-h200")


def test_kv_too_large_for_the_gpu(tmp_path: Path) -> None:
    model = small_model(tmp_path / "model", max_position_embeddings=1 << 28)
    with pytest.raises(DeviceError, match=r"K/V of 268435456 positions 64\.0\), l4 has 22\.5"):
        small_artifact(model, tmp_path / "out", gpu="l4", max_seq=1 << 28)


def test_random_weights_are_the_same_on_every_load(model: Path, tmp_path: Path) -> None:
    small_artifact(model, tmp_path / "out", random_weights=5)
    runs = []
    for _ in range(2):
        with amk.load(tmp_path / "out", device="cpu") as session:
            runs.append(session.logits([1, 2, 3]))
    np.testing.assert_array_equal(runs[0], runs[1])
