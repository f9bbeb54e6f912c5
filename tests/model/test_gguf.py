"""GGUF files: weights against the model they were written from, rope factors, and each kind of damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amk.errors import UnsupportedModelError
from amk.model.bf16 import to_bf16
from amk.model.gguf_checkpoint import unpermute
from amk.model.gguf_file import read_gguf
from amk.model.gguf_rope import rope_scaling_from_divisors
from amk.model.source import open_model
from tests.model.builders import hf_model, llama3_divisors, permute, save_gguf


@pytest.fixture(scope="module")
def model() -> Any:
    return hf_model()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small model.gguf"
    save_gguf(path, model)
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(written.read_bytes())
    return copy


def test_fp32_file_holds_the_model(written: Path, model: Any) -> None:
    opened = open_model(written)
    assert (opened.kind, opened.tokenizer_source) == ("gguf", written)
    graph = opened.graph
    assert (graph.norm_eps, graph.eos_token_ids, graph.rope.theta) == (1e-5, (2, 7), 10000.0)
    assert (graph.heads, graph.kv_heads, graph.head_dim, graph.max_position) == (4, 2, 16, 256)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(opened.checkpoint.fp32(name), value.numpy())
        np.testing.assert_array_equal(opened.checkpoint.bf16(name), to_bf16(value.numpy()))


def test_biases_are_unpermuted_too(tmp_path: Path) -> None:
    model = hf_model(attention_bias=True, mlp_bias=True)
    save_gguf(tmp_path / "m.gguf", model)
    opened = open_model(tmp_path / "m.gguf")
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(opened.checkpoint.fp32(name), value.numpy())


def test_tied_head_is_left_out_of_the_file(tmp_path: Path) -> None:
    save_gguf(tmp_path / "m.gguf", hf_model(tie_word_embeddings=True))
    assert open_model(tmp_path / "m.gguf").graph.tied_head


@pytest.mark.parametrize(
    ("qtype", "error"), [("F16", 1e-3), ("BF16", 8e-3), ("Q8_0", 0.01), ("Q4_1", 0.12), ("Q5_0", 0.09)]
)
def test_quantised_types(tmp_path: Path, model: Any, qtype: str, error: float) -> None:
    save_gguf(tmp_path / "m.gguf", model, qtype)
    checkpoint = open_model(tmp_path / "m.gguf").checkpoint
    for name, value in model.state_dict().items():
        got, expected = checkpoint.fp32(name), value.numpy()
        assert np.linalg.norm(got - expected) <= error * np.linalg.norm(expected)
        np.testing.assert_array_equal(checkpoint.bf16(name), to_bf16(got))


@pytest.mark.parametrize(
    "qtype", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q4_0", "Q5_1", "IQ4_NL", "IQ4_XS", "IQ2_XXS", "IQ1_M", "TQ1_0"]
)
def test_common_types_can_be_dequantised(qtype: str) -> None:
    from gguf.constants import GGMLQuantizationType

    from amk.model.gguf_checkpoint import _can_dequantise

    assert _can_dequantise(GGMLQuantizationType[qtype].value)
    assert not _can_dequantise(GGMLQuantizationType.I32.value)


@pytest.mark.parametrize("heads", [1, 3])
def test_unpermute_inverts_the_converter(heads: int) -> None:
    values = np.arange(heads * 8 * 5).reshape(heads * 8, 5)
    np.testing.assert_array_equal(unpermute(permute(values, heads), heads), values)


def test_logits_of_the_unpermuted_model(written: Path, model: Any) -> None:
    """Only the right row order gives transformers' own logits."""
    import torch
    from transformers import LlamaForCausalLM

    checkpoint = open_model(written).checkpoint
    again = LlamaForCausalLM(model.config).eval()
    again.load_state_dict({name: torch.from_numpy(checkpoint.fp32(name).copy()) for name in model.state_dict()})
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)


@pytest.mark.parametrize(
    ("head_dim", "theta", "factor", "high", "length"),
    [(64, 5e5, 32.0, 4.0, 8192), (128, 5e5, 8.0, 4.0, 8192), (128, 1e6, 4.0, 3.0, 4096), (16, 5e5, 8.0, 4.0, 8192)],
)
def test_llama3_rope_is_recovered(head_dim: int, theta: float, factor: float, high: float, length: int) -> None:
    scaling = rope_scaling_from_divisors(llama3_divisors(head_dim, theta, factor, 1.0, high, length), theta)
    assert scaling is not None
    assert scaling["rope_type"] == "llama3"
    assert (scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]) == (factor, 1.0, high)
    assert scaling["original_max_position_embeddings"] == length


def test_llama3_rope_with_another_low_factor_is_recovered_as_its_equal() -> None:
    scaling = rope_scaling_from_divisors(llama3_divisors(128, 5e5, 8.0, 2.0, 8.0, 8192), 5e5)
    assert scaling is not None
    assert (scaling["high_freq_factor"], scaling["original_max_position_embeddings"]) == (4.0, 4096)


def test_llama3_rope_from_a_file(tmp_path: Path, model: Any) -> None:
    factors = llama3_divisors(16, 10000.0, 8.0, 1.0, 4.0, 8192)
    save_gguf(tmp_path / "m.gguf", model, extra={"rope_freqs.weight": factors})
    rope = open_model(tmp_path / "m.gguf").graph.rope
    assert (rope.kind, rope.factor, rope.original_max_position, rope.theta) == ("llama3", 8.0, 8192, 10000.0)
    save_gguf(tmp_path / "m.gguf", model, extra={"rope_freqs.weight": np.ones(8, np.float32)})
    assert open_model(tmp_path / "m.gguf").graph.rope.kind == "default"


def test_rope_divisors_of_another_kind_are_refused(tmp_path: Path, model: Any) -> None:
    save_gguf(tmp_path / "m.gguf", model, extra={"rope_freqs.weight": np.linspace(1, 9, 8, dtype=np.float32)})
    with pytest.raises(UnsupportedModelError, match=r"rope_freqs.weight holds divisors .* use the safetensors"):
        open_model(tmp_path / "m.gguf")


def test_linear_rope(tmp_path: Path, model: Any) -> None:
    save_gguf(tmp_path / "m.gguf", model, rope__scaling__type="linear", rope__scaling__factor=4.0)
    rope = open_model(tmp_path / "m.gguf").graph.rope
    assert (rope.kind, rope.factor) == ("linear", 4.0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"arch": "mamba"}, "GGUF architecture 'mamba' is not supported: it has recurrent .*; supported: llama, "),
        ({"expert_count": 8}, r"llama.expert_count = 8 is not supported; supported: 0"),
        ({"brand_new": 1.5}, "llama.brand_new = 1.5 is not supported; supported: leaving it out"),
        ({"rope__scaling__type": "longrope"}, "llama.rope.scaling.type = 'longrope'"),
        ({"attention__key_length": 32}, "key_length = 32 and value_length = None differ"),
        ({"attention__key_length": 8, "attention__value_length": 8}, "rope.dimension_count = 16 .* supported: 8"),
    ],
)
def test_refused_metadata(tmp_path: Path, model: Any, keys: dict[str, Any], message: str) -> None:
    save_gguf(tmp_path / "m.gguf", model, **keys)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        open_model(tmp_path / "m.gguf")
    assert "\n" not in str(caught.value)


def test_unexpected_tensor_is_refused(tmp_path: Path, model: Any) -> None:
    save_gguf(tmp_path / "m.gguf", model, extra={"blk.0.attn_q_norm.weight": np.ones(16, np.float32)})
    with pytest.raises(UnsupportedModelError, match=r"has a tensor blk.0.attn_q_norm.weight"):
        open_model(tmp_path / "m.gguf")


def test_type_that_cannot_be_dequantised(tmp_path: Path, model: Any) -> None:
    save_gguf(tmp_path / "m.gguf", model, extra={"output.weight": np.ones((96, 64), np.int32)})
    with pytest.raises(UnsupportedModelError, match=r"tensor lm_head.weight has type I32, which cannot be dequantised"):
        open_model(tmp_path / "m.gguf")


def test_truncated_anywhere(path: Path) -> None:
    whole = path.read_bytes()
    for size in (0, 3, 10, 30, 500, 1500, len(whole) // 2, len(whole) - 64):
        path.write_bytes(whole[:size])
        with pytest.raises(UnsupportedModelError, match=r"copy.gguf: (damaged GGUF|cannot be read)"):
            open_model(path)


def test_damaged_headers(path: Path) -> None:
    whole = path.read_bytes()
    for start, bad, message in (
        (0, b"NOPE", "does not start with GGUF"),
        (4, b"\x09", "GGUF version 9 is not supported"),
        (8, b"\xff" * 8, "breaks off|unknown type"),
        (16, b"\xff" * 8, "breaks off"),
        (24, b"\xff" * 8, "breaks off"),
    ):
        path.write_bytes(whole[:start] + bad + whole[start + len(bad) :])
        with pytest.raises(UnsupportedModelError, match=message):
            open_model(path)


def test_metadata_matches_the_gguf_package(written: Path) -> None:
    from gguf import GGUFReader

    ours, theirs = read_gguf(written), GGUFReader(written)
    for name, field in theirs.fields.items():
        if not name.startswith("GGUF."):
            assert ours.metadata[name] == field.contents()
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert (mine.start, mine.size, mine.shape[::-1]) == (tensor.data_offset, tensor.n_bytes, tuple(tensor.shape))


def test_random_weights_in_the_shape_of_a_file(written: Path) -> None:
    opened = open_model(written, random_seed=1)
    assert (opened.kind, opened.checkpoint.kind, opened.tokenizer_source) == ("random", "random", written)
