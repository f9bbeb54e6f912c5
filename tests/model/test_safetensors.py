"""Hugging Face folders: every dtype against transformers, shards, and each kind of damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from amk.errors import UnsupportedModelError, UsageError
from amk.model.source import open_model
from tests.model.builders import CONFIG, edit_json, save_hf


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("hf") / "a model"  # a path with a space
    return folder, save_hf(folder)


@pytest.fixture
def folder(saved: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(saved[0], tmp_path / "copy"))


def assert_weights_equal(folder: Path, model: Any) -> None:
    import torch

    opened = open_model(folder)
    state = model.state_dict()
    for ref in opened.graph.tensors():
        expected = state[ref.name]
        bits = opened.checkpoint.bf16(ref.name)
        assert bits.dtype == np.uint16
        np.testing.assert_array_equal(bits, expected.bfloat16().view(torch.uint16).numpy())
        np.testing.assert_array_equal(opened.checkpoint.fp32(ref.name), expected.float().numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_every_dtype(tmp_path: Path, dtype: str) -> None:
    assert_weights_equal(tmp_path, save_hf(tmp_path, dtype))


def test_shards_biases_and_another_head_dim(tmp_path: Path) -> None:
    model = save_hf(tmp_path, "bfloat16", "40KB", attention_bias=True, mlp_bias=True, head_dim=32)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_weights_equal(tmp_path, model)


def test_tied_head(tmp_path: Path) -> None:
    assert_weights_equal(tmp_path, save_hf(tmp_path, tie_word_embeddings=True))
    assert open_model(tmp_path).graph.tied_head


def test_tied_head_that_is_stored_as_well(folder: Path) -> None:
    edit_json(folder / "config.json", tie_word_embeddings=True)
    with pytest.raises(UnsupportedModelError, match=r"lm_head.weight differs from .* set tie_word_embeddings to false"):
        open_model(folder)
    rewrite(folder, lambda tensors: tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    assert open_model(folder).graph.tied_head


def test_tied_head_that_is_stored_instead_of_the_embedding(tmp_path: Path) -> None:
    """Of tensors that share memory, safetensors' save_model keeps the first by name."""
    from safetensors.torch import save_model

    model = save_hf(tmp_path, tie_word_embeddings=True)
    (tmp_path / "model.safetensors").unlink()
    save_model(model, str(tmp_path / "model.safetensors"))
    with safe_open(tmp_path / "model.safetensors", "numpy") as file:
        assert "lm_head.weight" in file.keys()  # noqa: SIM118 - no dictionary
        assert "model.embed_tokens.weight" not in file.keys()  # noqa: SIM118
    assert_weights_equal(tmp_path, model)


def rewrite(folder: Path, change: Any) -> None:
    from safetensors.numpy import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    path.unlink()  # the arrays may map the file
    save_file(change(tensors), path)


def test_model_of_a_folder(saved: tuple[Path, Any]) -> None:
    model = open_model(saved[0])
    assert (model.kind, model.path, model.tokenizer_source) == ("safetensors", saved[0], None)
    assert model.graph.eos_token_ids == (2,)


def test_stored_inverse_frequencies_are_ignored(folder: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}
    rewrite(folder, lambda tensors: tensors | extra)
    open_model(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: {k: v for k, v in t.items() if "layers.1.mlp.up" not in k},
            "layers.1.mlp.up_proj.weight is missing",
        ),
        (lambda t: {k: v for k, v in t.items() if k != "lm_head.weight"}, "tensor lm_head.weight is missing"),
        (
            lambda t: t | {"model.norm.weight": np.ones(63, np.float32)},
            r"tensor model.norm.weight has shape \[63\], config.json asks for \[64\]",
        ),
        (
            lambda t: t | {"model.norm.weight": np.ones(64, np.int8)},
            "tensor model.norm.weight has dtype I8; supported: BF16, F16, F32, F64",
        ),
        (
            lambda t: t | {"model.layers.0.self_attn.q_norm.weight": np.ones(16, np.float32)},
            "has a tensor model.layers.0.self_attn.q_norm.weight",
        ),
        (
            lambda t: t | {"model.layers.0.self_attn.q_proj.bias": np.ones(64, np.float32)},
            "has a tensor model.layers.0.self_attn.q_proj.bias",
        ),
    ],
)
def test_tensors_that_do_not_fit(folder: Path, change: Any, message: str) -> None:
    rewrite(folder, change)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        open_model(folder)
    assert "\n" not in str(caught.value)


def test_fp8_is_refused(folder: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = {name: value.clone() for name, value in load_file(path).items()}
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].to(torch.float8_e4m3fn)
    save_file(tensors, path)
    with pytest.raises(UnsupportedModelError, match=f"tensor {name} has dtype F8_E4M3"):
        open_model(folder)


def cut(folder: Path, size: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize("left", [0, 5, 100])
def test_truncated_header(folder: Path, left: int) -> None:
    cut(folder, left)
    with pytest.raises(UnsupportedModelError, match="damaged safetensors file: its header needs"):
        open_model(folder)


def test_truncated_data(folder: Path) -> None:
    cut(folder, -1)
    with pytest.raises(UnsupportedModelError, match=r"tensor .* ends at byte .* \(truncated\?\)"):
        open_model(folder)


def write_raw(folder: Path, header: bytes, data: bytes = b"") -> None:
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + data)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"not json", "header is not JSON"),
        (b"[1]", "header is not a JSON object"),
        (b"\xff\xfe{}", "header is not JSON"),
        (b'{"a":{"dtype":"F32","shape":[2]}}', "entry of tensor a is malformed"),
        (b'{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}', "entry of tensor a is malformed"),
        (b'{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}', r"F32 \[3\] cannot take 8 bytes"),
        (b'{"a":7}', "entry of tensor a is malformed"),
    ],
)
def test_broken_headers(folder: Path, header: bytes, message: str) -> None:
    write_raw(folder, header, bytes(8))
    with pytest.raises(UnsupportedModelError, match=message):
        open_model(folder)


def test_misaligned_tensor_is_copied(tmp_path: Path) -> None:
    from amk.model.safetensors_checkpoint import SafetensorsCheckpoint

    header = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
    write_raw(tmp_path, header, b"x" + np.array([1.5, -2.0], np.float32).tobytes())
    assert SafetensorsCheckpoint.open(tmp_path).fp32("a").tolist() == [1.5, -2.0]


def test_missing_shard_and_bad_index(tmp_path: Path) -> None:
    save_hf(tmp_path, shard="40KB")
    index = tmp_path / "model.safetensors.index.json"
    shard = min(tmp_path.glob("model-*.safetensors"))
    content = shard.read_bytes()
    shard.unlink()
    with pytest.raises(UnsupportedModelError, match=f"{shard.name}: the index names this shard, but it is missing"):
        open_model(tmp_path)
    shard.write_bytes(content)
    edit_json(index, weight_map={"a": "../model.safetensors"})
    with pytest.raises(UnsupportedModelError, match="is not a file name in the same folder"):
        open_model(tmp_path)
    index.write_text("{}")
    with pytest.raises(UnsupportedModelError, match="no usable weight_map"):
        open_model(tmp_path)


def test_tensor_in_two_shards(tmp_path: Path) -> None:
    save_hf(tmp_path)
    shutil.copy(tmp_path / "model.safetensors", tmp_path / "a.safetensors")
    (tmp_path / "model.safetensors").rename(tmp_path / "b.safetensors")
    weight_map = {"x": "a.safetensors", "y": "b.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(UnsupportedModelError, match=r"b.safetensors: tensor .* is also in a.safetensors"):
        open_model(tmp_path)


def test_pickles_are_never_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match=r"pytorch_model.bin here: pickled weights can run code"):
        open_model(folder)


def test_config_only_needs_random_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(UnsupportedModelError, match=r"no model.safetensors .* --random-weights SEED"):
        open_model(tmp_path)
    model = open_model(tmp_path, random_seed=3)
    assert (model.kind, model.checkpoint.kind) == ("random", "random")
    assert model.checkpoint.bf16("lm_head.weight").shape == (96, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not valid JSON"), ("[1]", "holds list, not a JSON object"), ("\xff", "not valid JSON")],
)
def test_bad_config_json(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    with pytest.raises(UnsupportedModelError, match=message):
        open_model(tmp_path)


def test_no_such_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no such folder or file"):
        open_model(tmp_path / "nothing")
    with pytest.raises(UnsupportedModelError, match=r"has no config.json"):
        open_model(tmp_path)
    (tmp_path / "x.gguf").touch()
    with pytest.raises(UnsupportedModelError, match=r"or the file .*x.gguf"):
        open_model(tmp_path)
    (tmp_path / "x.txt").touch()
    with pytest.raises(UsageError, match="not a model"):
        open_model(tmp_path / "x.txt")


def test_hub_id_when_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(UsageError, match="owner/name: no such folder here, and the hub cannot be reached") as caught:
        open_model("owner/name")
    assert "\n" not in str(caught.value)


def test_hub_id_downloads_what_is_needed(monkeypatch: pytest.MonkeyPatch, saved: tuple[Path, Any]) -> None:
    import huggingface_hub

    asked: list[Any] = []

    def fetch(repo: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append((repo, allow_patterns))
        return str(saved[0])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert open_model("owner/name").path == saved[0]
    open_model("owner/name", random_seed=1)
    assert "*.safetensors" in asked[0][1]
    assert "*.safetensors" not in asked[1][1]
    assert not any(pattern in ("*", "*.py", "*.bin") for pattern in asked[0][1])
