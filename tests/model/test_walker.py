"""The walker: what it reads from a config.json, and each thing that it refuses, with its message."""

from __future__ import annotations

from typing import Any

import pytest

from amk.errors import UnsupportedModelError
from amk.model.config import HARMLESS_FIELDS, PINNED_FIELDS, READ_FIELDS
from amk.model.walker import walk
from tests.model.builders import config_with

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def test_sizes_and_names() -> None:
    graph = walk(config_with())
    assert (graph.hidden, graph.intermediate, graph.vocab, len(graph.layers)) == (64, 128, 96, 2)
    assert (graph.heads, graph.kv_heads, graph.group, graph.head_dim) == (4, 2, 2, 16)
    assert graph.attention_scale == 0.25
    assert graph.layers[1].k.weight.name == "model.layers.1.self_attn.k_proj.weight"
    assert graph.layers[1].k.weight.shape == (32, 64)
    assert graph.layers[0].down.weight.shape == (64, 128)
    assert not graph.tied_head
    assert graph.head.weight.name == "lm_head.weight"
    assert len(graph.tensors()) == 2 * 9 + 3


def test_defaults_are_those_of_transformers() -> None:
    graph = walk(config_with(num_key_value_heads=..., rms_norm_eps=..., max_position_embeddings=..., eos_token_id=...))
    assert (graph.kv_heads, graph.norm_eps, graph.max_position, graph.eos_token_ids) == (4, 1e-6, 2048, (2,))
    assert graph.rope.theta == 10000.0
    assert walk(config_with(architectures=...)).architecture == "LlamaForCausalLM"


def test_explicit_head_dim_need_not_divide_hidden() -> None:
    graph = walk(config_with(head_dim=32, num_attention_heads=3, num_key_value_heads=3))
    assert graph.layers[0].q.weight.shape == (96, 64)
    assert graph.layers[0].o.weight.shape == (64, 96)


def test_tied_head_and_biases() -> None:
    graph = walk(config_with(tie_word_embeddings=True, attention_bias=True, mlp_bias=True))
    assert graph.head.weight is graph.embed
    layer = graph.layers[0]
    assert all(linear.bias for linear in (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down))
    assert layer.k.bias is not None
    assert layer.k.bias.shape == (32,)


@pytest.mark.parametrize(
    ("config_eos", "generation", "expected"),
    [
        (2, None, (2,)),
        (2, {"eos_token_id": [5, 6, 5]}, (5, 6)),
        (2, {"eos_token_id": 9}, (9,)),
        ([3, 4], {}, (3, 4)),
        (None, None, ()),
        (-1, None, ()),
        (96, None, ()),
    ],
)
def test_stop_tokens(config_eos: Any, generation: dict[str, Any] | None, expected: tuple[int, ...]) -> None:
    assert walk(config_with(eos_token_id=config_eos), generation).eos_token_ids == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 5e5, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 64}},
        {"rope_parameters": LLAMA3 | {"original_max_position_embeddings": 64, "rope_theta": 5e5}},
        {"rope_theta": 5e5, "rope_scaling": LLAMA3, "original_max_position_embeddings": 64},
    ],
)
def test_llama3_rope_in_every_style(changes: dict[str, Any]) -> None:
    rope = walk(config_with(**changes)).rope
    assert (rope.kind, rope.theta, rope.original_max_position) == ("llama3", 5e5, 64)
    assert (rope.factor, rope.low_freq_factor, rope.high_freq_factor) == (8.0, 1.0, 4.0)


def test_other_ropes() -> None:
    linear = walk(config_with(rope_scaling={"type": "linear", "factor": 4})).rope
    assert (linear.kind, linear.factor) == ("linear", 4.0)
    dynamic = walk(config_with(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 7.0})).rope
    assert (dynamic.kind, dynamic.theta, dynamic.original_max_position) == ("dynamic", 7.0, 256)
    assert walk(config_with(rope_scaling=None, rope_parameters=None)).rope.kind == "default"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"architectures": ["MixtralForCausalLM"]}, "MixtralForCausalLM is not supported: it is a mixture of experts"),
    ({"architectures": ["DeepseekV3ForCausalLM"]}, "latent attention"),
    ({"architectures": ["GPT2LMHeadModel"]}, "LayerNorm"),
    ({"architectures": ["T5ForConditionalGeneration"]}, "encoder-decoder"),
    ({"architectures": ["NewMoeForCausalLM"]}, "mixture of experts"),
    ({"architectures": ["NewForConditionalGeneration"]}, "multimodal or an encoder-decoder"),
    ({"architectures": ["LlamaForSequenceClassification"]}, "no language-model head"),
    ({"architectures": ["NewForCausalLM"]}, "does not implement it yet; supported: LlamaForCausalLM, Mistral"),
    ({"architectures": ["Qwen3ForCausalLM"]}, "model_type = 'llama' contradicts .*\"qwen3\" is expected"),
    ({"architectures": []}, "names no architecture"),
    ({"model_type": "mistral"}, "model_type = 'mistral' contradicts"),
    ({"hidden_act": "gelu"}, 'hidden_act = "gelu" is not supported; supported: silu'),
    ({"sliding_window": 4096}, "sliding_window = 4096 is not supported; supported: null"),
    ({"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
    ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config = .*use the bf16"),
    ({"frobnicate": 0.5}, "frobnicate = 0.5 is a field that amk does not know"),
    ({"auto_map": {"AutoModelForCausalLM": "m.M"}}, "its own Python code"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ({"hidden_size": ...}, "hidden_size is missing"),
    ({"vocab_size": 0}, "vocab_size = 0 is not supported; supported: a positive integer"),
    ({"num_hidden_layers": 2.5}, "num_hidden_layers = 2.5"),
    ({"num_hidden_layers": True}, "num_hidden_layers = True"),
    ({"rms_norm_eps": "x"}, "rms_norm_eps"),
    ({"attention_bias": 1}, "attention_bias = 1 is not supported; supported: true or false"),
    ({"num_key_value_heads": 3}, "num_key_value_heads = 3 .* a divisor of num_attention_heads"),
    ({"hidden_size": 66}, "hidden_size = 66 .* a multiple of num_attention_heads"),
    ({"head_dim": 15}, "head_dim = 15 .* an even number"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5 is not supported; supported: 1.0"),
    (
        {"rope_scaling": {"type": "proportional"}},
        'rope_type = "proportional" .* default, linear, dynamic, llama3, yarn',
    ),
    ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
    ({"rope_scaling": {"type": "linear", "factor": -1}}, "factor = -1"),
    ({"rope_scaling": {"type": "linear", "rope_type": "dynamic", "factor": 2}}, "disagree"),
    ({"rope_scaling": {"type": "linear", "factor": 2, "beta_fast": 32}}, "rope setting beta_fast = 32"),
    ({"rope_scaling": {"factor": 2}}, "rope setting factor = 2"),
    ({"rope_scaling": LLAMA3 | {"high_freq_factor": 1.0}}, "high_freq_factor = 1.0 .* more than low_freq_factor"),
    ({"rope_scaling": [1]}, r"rope_scaling = \[1\]"),
    ({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 3.0}}, "keep one of them"),
    ({"eos_token_id": "x"}, "eos_token_id = 'x' is neither"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=lambda item: str(item)[:60])
def test_refusals_name_field_value_and_way_out(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        walk(config_with(**changes))
    assert "\n" not in str(caught.value)


def test_pinned_fields_at_their_values_are_accepted() -> None:
    for name, values in PINNED_FIELDS.items():
        for value in values:
            walk(config_with(**{name: value}))
    walk(config_with(layer_types=["full_attention"] * 2, auto_map={"AutoTokenizer": "x"}, quantization_config=None))


def test_field_tables_do_not_overlap() -> None:
    assert not (READ_FIELDS & HARMLESS_FIELDS)
    assert not (set(PINNED_FIELDS) & (READ_FIELDS | HARMLESS_FIELDS))


def test_everything_transformers_writes_is_known() -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(**config_with())
    assert walk(config.to_dict()) == walk(config_with())
