"""GGUF files of the families against the models that they were written from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amk.errors import UnsupportedModelError
from amk.model.families import FAMILIES
from amk.model.gguf_architectures import ARCHITECTURES
from amk.model.source import open_model
from tests.families.cases import CASES, COMMON, Case
from tests.families.gguf_cases import GGUF_CASES, architectures_of
from tests.families.gguf_files import save_gguf, state_of, tensors, write_gguf
from tests.families.models import greedy, randomise, reference, save
from tests.runtime.models import relative_error, session_of, tokens_of

IDS = tokens_of(70, 503)


def saved(name: str, folder: Path) -> tuple[Path, Any]:
    """(the file, the model)."""
    case = GGUF_CASES[name]
    model = save(case.model(), folder / "hf")
    path = folder / f"{name}.gguf"
    save_gguf(path, case.arch, model, case.sized, **case.settings)
    return path, model


def assert_is(path: Path, model: Any) -> None:
    """The file's logits are the model's."""
    with session_of(path, "fp32", 128) as session:
        assert relative_error(session.logits(IDS), reference(model, IDS)) < 1e-4


@pytest.mark.parametrize("name", GGUF_CASES)
def test_file_is_the_model(name: str, tmp_path: Path) -> None:
    """Its logits are transformers'; graph and weights are those of the folder, so the kernel is, too."""
    path, model = saved(name, tmp_path)
    assert_is(path, model)
    from_file, from_folder = open_model(path), open_model(tmp_path / "hf")
    if from_file.graph.architecture == "LlamaForCausalLM":  # Mistral's window is lost, and here there is none
        from_folder = replace(from_folder, graph=replace(from_folder.graph, architecture="LlamaForCausalLM"))
    assert from_file.graph == from_folder.graph
    for ref in from_folder.graph.tensors():
        if len(ref.shape) == 2:
            np.testing.assert_array_equal(from_file.checkpoint.bf16(ref.name), from_folder.checkpoint.bf16(ref.name))
        else:
            expected = from_folder.checkpoint.fp32(ref.name)
            np.testing.assert_allclose(from_file.checkpoint.fp32(ref.name), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["glm4", "exaone4", "olmo3"])
def test_greedy_tokens_are_the_models(name: str, tmp_path: Path) -> None:
    path, model = saved(name, tmp_path)
    with session_of(path, "fp32", 128) as session:
        assert session.generate(IDS, 24).token_ids == greedy(model, IDS, 24)[0]


def test_every_architecture_and_every_convertible_family_has_a_file() -> None:
    """The README's table says which; the others are refused by name."""
    assert {case.arch for case in GGUF_CASES.values()} == set(ARCHITECTURES)
    without = {case.family for case in CASES.values() if not architectures_of(case.family)}
    assert without == {"Ministral", "VaultGemma", "Helium", "CWM", "HyperCLOVA X"}


@pytest.mark.parametrize("architecture", ["ministral", "vaultgemma", "helium", "cwm", "hyperclovax"])
def test_family_without_converter_is_refused_by_name(architecture: str, tmp_path: Path) -> None:
    family = next(family for family in FAMILIES.values() if family.model_type == architecture)
    write_gguf(tmp_path / "x.gguf", architecture, tiny_config(), {})
    with pytest.raises(UnsupportedModelError) as caught:
        open_model(tmp_path / "x.gguf")
    assert f"GGUF architecture '{architecture}' is not supported: llama.cpp has no converter for" in str(caught.value)
    assert f"{family.architecture}, so" in str(caught.value)
    assert "use the safetensors checkpoint" in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("qwen3moe", "mixture of experts"),
        ("deepseek2", "latent attention"),
        ("gpt-oss", "attention sinks"),
        ("falcon-h1", "state-space"),
        ("command-r", "LayerNorm"),
        ("apertus", "no gate"),
        ("exaone", "no code of its own"),
        ("qwen2vl", "multimodal"),
        ("bailingmoe2", "mixture of experts"),
        ("rwkv7", "recurrent"),
        ("olmo3", "does not implement it yet"),
        ("mystery", "does not implement it yet"),
    ],
)
def test_other_architectures_are_refused_for_their_reason(architecture: str, reason: str, tmp_path: Path) -> None:
    write_gguf(tmp_path / "x.gguf", architecture, tiny_config(), {})
    with pytest.raises(
        UnsupportedModelError, match=f"'{architecture}' is not supported: .*{reason}.*; supported: llama"
    ):
        open_model(tmp_path / "x.gguf")


def tiny_config() -> Any:
    """A config for files that are not read further than their metadata."""
    from transformers import LlamaConfig

    return LlamaConfig(**CASES["llama"].config())


def test_chatglm_of_the_first_release(tmp_path: Path) -> None:
    """ChatGLMModel has q, k and v in one tensor with one bias; the converter leaves them so."""
    case = GGUF_CASES["glm"]
    model = save(case.model(), tmp_path / "hf")
    state = state_of(model)
    arrays = tensors("chatglm", model.config, state)
    for layer in range(4):
        for kind in ("weight", "bias"):
            parts = [arrays.pop(f"blk.{layer}.attn_{letter}.{kind}") for letter in "qkv"]
            arrays[f"blk.{layer}.attn_qkv.{kind}"] = np.concatenate(parts)
    write_gguf(tmp_path / "m.gguf", "chatglm", model.config, arrays, case.sized, **case.settings)
    assert_is(tmp_path / "m.gguf", model)
    assert open_model(tmp_path / "m.gguf").graph == open_model(tmp_path / "hf").graph
    arrays["blk.1.attn_qkv.weight"] = arrays["blk.1.attn_qkv.weight"][:-1]
    write_gguf(tmp_path / "m.gguf", "chatglm", model.config, arrays, case.sized, **case.settings)
    with pytest.raises(UnsupportedModelError, match=r"blk.1.attn_qkv.weight has shape \[159, 96\], .* 160 rows"):
        open_model(tmp_path / "m.gguf")


GRANITE4 = {
    "hidden_size": 96, "head_dim": ..., "layer_types": ["attention"] * 4, "num_local_experts": 0,
    "num_experts_per_tok": 0, "shared_intermediate_size": COMMON["intermediate_size"], "mamba_n_heads": 6,
    "position_embedding_type": "rope", "embedding_multiplier": 12.0, "attention_multiplier": 0.15,
    "residual_multiplier": 0.22, "logits_scaling": 8.0,
}  # fmt: skip
GRANITE4_SETTINGS = {
    "attention__scale": 0.15, "embedding_scale": 12.0, "residual_scale": 0.22, "logit_scale": 8.0, "expert_count": 0,
    "expert_used_count": 0, "ssm__conv_kernel": 4, "ssm__state_size": 256, "ssm__group_count": 1,
    "ssm__inner_size": 192, "ssm__time_step_rank": 6, "expert_shared_feed_forward_length": 136,
    "rope__scaling__finetuned": True,
}  # fmt: skip


def test_dense_granite_4(tmp_path: Path) -> None:
    """A hybrid without state-space layers is converted to `granite`, its shared MLP to the only one."""
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    config = GraniteMoeHybridConfig(**Case("", "", "", "", GRANITE4).config())
    model = GraniteMoeHybridForCausalLM(config).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            randomise(name, value)
    state = {}
    for name, value in state_of(model).items():
        if "input_linear" in name:
            base = name.replace("shared_mlp.input_linear.weight", "mlp")
            state[f"{base}.gate_proj.weight"], state[f"{base}.up_proj.weight"] = np.split(value, 2)
        else:
            state[name.replace("shared_mlp.output_linear", "mlp.down_proj")] = value
    arrays = tensors("granite", config, state)
    write_gguf(tmp_path / "m.gguf", "granite", config, arrays, False, **GRANITE4_SETTINGS)
    assert_is(tmp_path / "m.gguf", model)
    settings = GRANITE4_SETTINGS | {"rope__scaling__finetuned": False}
    write_gguf(tmp_path / "m.gguf", "granite", config, arrays, False, **settings)
    with pytest.raises(UnsupportedModelError, match=r"granite.rope.scaling.finetuned = False .* supported: True"):
        open_model(tmp_path / "m.gguf")


def test_first_files_of_exaone_4_32b_do_not_name_its_window(tmp_path: Path) -> None:
    """llama.cpp knows it by the 64 layers."""
    changes = {"num_hidden_layers": 64, "hidden_size": 8, "intermediate_size": 8, "head_dim": 8, "vocab_size": 8}
    case = replace(CASES["exaone4"], changes={"sliding_window": 4096, "sliding_window_pattern": 4} | changes)
    model = save(case, tmp_path / "hf")
    save_gguf(tmp_path / "m.gguf", "exaone4", model)
    assert open_model(tmp_path / "m.gguf").graph == open_model(tmp_path / "hf").graph


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("qwen2", {"logit_scale": 2.0}, r"qwen2\.logit_scale = 2\.0 is not supported"),
    ("llama", {"attention__sliding_window": 16}, r"llama.attention.sliding_window = 16 .* supported: 0"),
    ("mistral3", {"attention__temperature_scale": 0.1}, r"mistral3.attention.temperature_scale = 0.1\d* "),
    ("mistral3", {"rope__scaling__yarn_log_multiplier": 1.0}, r"yarn_log_multiplier = 1.0 .* leaving it out"),
    ("exaone4", {"nextn_predict_layers": 1}, r"exaone4.nextn_predict_layers = 1"),
    (
        "exaone4",
        {"attention__sliding_window": 16, "attention__sliding_window_pattern": [True]},
        r"= \[True\] .* 4 flags",
    ),
    (
        "exaone4",
        {"attention__sliding_window": 16, "attention__sliding_window_pattern": 0},
        r"sliding_window_pattern = 0",
    ),
    ("gemma3", {"attention__sliding_window": "wide"}, r"sliding_window = 'wide' .* an integer"),
    ("glm4", {"rope__dimension_sections": [1, 2, 3, 0]}, r"glm4.rope.dimension_sections"),
    ("glm4", {"rope__dimension_count": 17}, r"glm4.rope.dimension_count = 17 .* supported: 16"),
    ("seed_oss", {"rope__freq_base": "x"}, r"seed_oss.rope.freq_base = 'x' .* a number"),
    ("llama", {"rope__scaling__type": 4}, r"llama.rope.scaling.type = 4 .* a string"),
    ("llama", {"attention__head_count": [6, 6, 4, 6]}, r"head_count = \[6, 6, 4, 6\] .* the same in all layers"),
    ("llama", {"embedding_length": "x"}, r"embedding_length = 'x' .* an integer"),
]


@pytest.mark.parametrize(("name", "settings", "message"), REFUSED, ids=lambda item: str(item)[:50])
def test_settings_that_amk_lacks_are_named(
    name: str, settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of another architecture among them, and damaged ones."""
    import gguf

    monkeypatch.setattr(gguf.GGUFWriter, "add_key_value", overwrite)
    write_gguf(tmp_path / "x.gguf", name, tiny_config(), {}, **settings)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        open_model(tmp_path / "x.gguf")
    assert "\n" not in str(caught.value)


def overwrite(writer: Any, key: str, value: Any, kind: Any, sub_type: Any = None) -> None:
    """The writer's add_key_value, but the last value counts."""
    import gguf

    writer.kv_data[0][key] = gguf.GGUFValue(value=value, type=kind, sub_type=sub_type)


def test_norms_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    path, _ = saved("gemma", tmp_path)
    from_file, from_folder = open_model(path), open_model(tmp_path / "hf")
    for name in ("model.norm.weight", "model.layers.2.input_layernorm.weight"):
        np.testing.assert_allclose(from_file.checkpoint.fp32(name), from_folder.checkpoint.fp32(name), rtol=1e-6)


def test_longrope_from_its_tensors(tmp_path: Path) -> None:
    """The converter writes the divisors as tensors, and the factor of cos and sin."""
    rope = CASES["phi3-longrope"].changes["rope_parameters"]
    model = save(CASES["phi3-longrope"], tmp_path / "hf")
    arrays = tensors("phi3", model.config, state_of(model))
    for name in ("long", "short"):
        arrays[f"rope_factors_{name}.weight"] = np.array(rope[f"{name}_factor"], np.float32)
    settings = {
        "rope__dimension_count": 12, "rope__scaling__original_context_length": 64, "attention__sliding_window": 0,
        "rope__scaling__attn_factor": open_model(tmp_path / "hf").graph.rope.attention_factor,
    }  # fmt: skip
    write_gguf(tmp_path / "m.gguf", "phi3", model.config, arrays, False, **settings)
    with session_of(tmp_path / "m.gguf", "fp32", 128) as session:
        for length in (40, 70):
            assert relative_error(session.logits(IDS[:length]), reference(model, IDS[:length])) < 1e-4
