"""Checkpoints as people have them: dtypes, shards, links, odd paths, files that are missing or read-only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import amk
from amk.errors import ArtifactError, UnsupportedModelError
from amk.model.source import open_model
from tests.families.cases import CASES
from tests.families.gguf_files import save_gguf
from tests.families.models import reference, save
from tests.runtime.models import machine_of, relative_error, session_of, tokens_of

IDS = tokens_of(30, 503)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder that tests copy, and its model: tied, with fused tensors."""
    folder = tmp_path_factory.mktemp("wild")
    return folder, save(CASES["phi3"], folder)


@pytest.fixture
def folder(saved: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy that a test may change, at a path with spaces and other letters."""
    target = tmp_path / "my models" / "phi – größe 3"
    shutil.copytree(saved[0], target)
    return target


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-3), ("float16", 2e-3), ("bfloat16", 1e-2)])
def test_dtypes_in_shards(saved: tuple[Path, Any], tmp_path: Path, dtype: str, tolerance: float) -> None:
    """Matrices of this model are bf16 values, which fp16 holds within rounding; norms lose bits in bf16."""
    import torch

    model = saved[1]
    import copy

    copy.deepcopy(model).to(getattr(torch, dtype)).save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    with session_of(tmp_path, "fp32", 64) as session:
        assert relative_error(session.logits(IDS), reference(model, IDS)) < tolerance


def test_path_with_spaces_builds_and_loads(folder: Path) -> None:
    artifact = amk.build(folder, gpu="h200", max_seq=64, out=folder.parent / "an artifact")
    with amk.load(artifact.path, device="cpu") as session:
        assert len(session.generate(IDS, 4).token_ids) == 4


def test_symlinked_hub_cache(folder: Path, tmp_path: Path, saved: tuple[Path, Any]) -> None:
    """Snapshots of the hub's cache are folders of links into blobs."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.move(path, blobs / f"{number:040x}")
        (snapshot / path.name).symlink_to(Path("..") / ".." / "blobs" / f"{number:040x}")
    with session_of(snapshot, "fp32", 64) as session:
        assert relative_error(session.logits(IDS), reference(saved[1], IDS)) < 1e-4


def test_gguf_in_a_hub_cache(tmp_path: Path) -> None:
    """There the file is a link to a blob, whose name has no suffix."""
    model = save(CASES["qwen2"], tmp_path / "hf")
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save_gguf(blobs / "0a1b2c", "qwen2", model, head_dim=False)
    (snapshot / "model q8.gguf").symlink_to(Path("..") / ".." / "blobs" / "0a1b2c")
    artifact = amk.build(snapshot / "model q8.gguf", gpu="h200", max_seq=64, out=tmp_path / "out", kv_dtype="fp32")
    with amk.load(artifact.path, device="cpu") as session:
        assert relative_error(session.logits(IDS), reference(model, IDS)) < 1e-4


def test_link_to_a_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    artifact = amk.build("a link", gpu="h200", max_seq=64, out="out")
    monkeypatch.chdir("/")
    with amk.load(tmp_path / artifact.path, device="cpu") as session:
        assert len(session.generate(IDS, 4).token_ids) == 4


@pytest.fixture
def read_only(folder: Path) -> Iterator[Path]:
    """A folder in which nothing may be written."""
    for path in [*folder.iterdir(), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    folder.chmod(0o755)


def test_read_only_folder(read_only: Path) -> None:
    before = sorted(path.name for path in read_only.iterdir())
    machine, _ = machine_of(read_only, "fp32", 64)
    assert machine.vocab == 503
    assert sorted(path.name for path in read_only.iterdir()) == before


def test_missing_generation_config(folder: Path) -> None:
    (folder / "generation_config.json").unlink(missing_ok=True)
    edit(folder / "config.json", eos_token_id=[7, 9])
    assert open_model(folder).graph.eos_token_ids == (7, 9)


def test_generation_stops_at_any_of_several_tokens(folder: Path) -> None:
    with session_of(folder, "fp32", 64) as session:
        tokens = session.generate(IDS, 8).token_ids
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [500, tokens[2], 501]}))
    with session_of(folder, "fp32", 64) as session:
        run = session.generate(IDS, 8)
    assert run.token_ids == tokens[: tokens.index(tokens[2]) + 1]
    assert run.finish_reason == "stop"


def test_fused_tensors_are_taken_apart(folder: Path, saved: tuple[Path, Any]) -> None:
    opened = open_model(folder)
    stored = saved[1].state_dict()["model.layers.1.self_attn.qkv_proj.weight"].numpy()
    parts = [opened.checkpoint.bf16(f"model.layers.1.self_attn.{x}_proj.weight") for x in "qkv"]
    as_fp32 = np.concatenate(parts).astype(np.uint32) << 16
    np.testing.assert_array_equal(as_fp32.view(np.float32), stored)


def test_pairs_of_rows_are_taken_apart(tmp_path: Path) -> None:
    """Of 16 dimensions of a head, 8 are rotated: stored rows 0, 2, 4, 6, then 1, 3, 5, 7, then the others."""
    model = save(CASES["glm"], tmp_path)
    opened = open_model(tmp_path)
    order = [0, 2, 4, 6, 1, 3, 5, 7, *range(8, 16)]
    for name, heads in (("q", 6), ("k", 2)):
        rows = [16 * head + row for head in range(heads) for row in order]
        stored = model.state_dict()[f"model.layers.1.self_attn.{name}_proj.weight"].numpy()
        as_fp32 = opened.checkpoint.bf16(f"model.layers.1.self_attn.{name}_proj.weight").astype(np.uint32) << 16
        np.testing.assert_array_equal(as_fp32.view(np.float32), stored[rows])
        bias = model.state_dict()[f"model.layers.1.self_attn.{name}_proj.bias"].numpy()
        np.testing.assert_array_equal(opened.checkpoint.fp32(f"model.layers.1.self_attn.{name}_proj.bias"), bias[rows])


def test_fused_tensor_of_another_shape_is_named(folder: Path) -> None:
    edit(folder / "config.json", num_key_value_heads=3)
    with pytest.raises(UnsupportedModelError, match=r"q_proj.weight has shape \[160, 96\], config.json asks for"):
        open_model(folder)


def test_config_edited_after_the_build_is_noticed(folder: Path) -> None:
    artifact = amk.build(folder, gpu="h200", max_seq=64, out=folder.parent / "out")
    edit(folder / "config.json", rope_parameters={"rope_type": "default", "rope_theta": 5.0})
    with pytest.raises(ArtifactError, match=r"config changed since .* build the artifact again"):
        amk.load(artifact.path, device="cpu")
    again = amk.build(folder, gpu="h200", max_seq=64, out=folder.parent / "out")
    assert again.manifest["build"] != artifact.manifest["build"]


def test_stop_tokens_may_change_after_the_build(folder: Path) -> None:
    artifact = amk.build(folder, gpu="h200", max_seq=64, out=folder.parent / "out")
    edit(folder / "config.json", eos_token_id=[5])
    with amk.load(artifact.path, device="cpu") as session:
        assert session.graph.eos_token_ids == (5,)
