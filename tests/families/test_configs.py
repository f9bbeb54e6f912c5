"""Config files as they are on the hub, old and new, and fields that a family must refuse."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest

from amk.errors import UnsupportedModelError
from amk.model.families import FAMILIES
from amk.model.graph import ModelGraph
from amk.model.refusals import REASONS, refusal_reason
from amk.model.walker import walk
from tests.families.cases import CASES, YARN
from tests.families.models import transformers_config
from tests.families.real_sizes import CONFIGS

PHI35: dict[str, Any] = {
    "_name_or_path": "Phi-3.5-mini-instruct", "architectures": ["Phi3ForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_phi3.Phi3Config", "AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM",
    },
    "bos_token_id": 1, "embd_pdrop": 0.0, "eos_token_id": 32000, "hidden_act": "silu", "hidden_size": 3072,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "phi3",
    "num_attention_heads": 32, "num_hidden_layers": 2, "num_key_value_heads": 32,
    "original_max_position_embeddings": 4096, "pad_token_id": 32000, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05,
    "rope_scaling": {"long_factor": [1.1] * 48, "short_factor": [1.0] * 48, "type": "longrope"}, "rope_theta": 10000.0,
    "sliding_window": 262144, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.3", "use_cache": True, "vocab_size": 32064,
}  # fmt: skip
QWEN25: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "transformers_version": "4.43.1", "use_cache": True, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
GEMMA2: dict[str, Any] = {
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 107],
    "final_logit_softcapping": 30.0, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02,
    "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
    "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0, "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "bfloat16",
    "transformers_version": "4.42.4", "use_cache": True, "vocab_size": 256000,
}  # fmt: skip
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768,
    "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": True, "vocab_size": 262144,
}  # fmt: skip


def test_phi_35_as_published() -> None:
    graph = walk(PHI35)
    assert {layer.window for layer in graph.layers} == {262144}
    assert (graph.rope.kind, graph.rope.dim, graph.rope.original_max_position) == ("longrope", 96, 4096)
    assert graph.rope.attention_factor == pytest.approx(math.sqrt(1 + math.log(32) / math.log(4096)))
    assert (graph.fused[0].ref.name, graph.fused[0].ref.shape) == (
        "model.layers.0.self_attn.qkv_proj.weight", (9216, 3072)
    )  # fmt: skip


def test_qwen_25_as_published() -> None:
    graph = walk(QWEN25, {"eos_token_id": [151645, 151643]})
    assert (graph.rope.theta, graph.eos_token_ids, graph.tied_head) == (1e6, (151645, 151643), True)
    assert {layer.window for layer in graph.layers} == {0}
    assert all(layer.q.bias and layer.k.bias and layer.v.bias and not layer.o.bias for layer in graph.layers)


def test_qwen_25_with_yarn_as_its_model_card_says() -> None:
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    rope = walk(QWEN25 | {"rope_scaling": yarn}).rope
    assert (rope.kind, rope.original_max_position, rope.factor) == ("yarn", 32768, 4.0)
    assert rope.attention_factor == pytest.approx(0.1 * math.log(4) + 1)


def test_gemma_2_as_published() -> None:
    graph = walk(GEMMA2)
    assert [layer.window for layer in graph.layers[:4]] == [4096, 0, 4096, 0]
    assert (graph.logits_cap, graph.score_cap, graph.norm_offset) == (30.0, 50.0, 1.0)
    assert (graph.embed_scale, graph.attention_scale) == (48.0, 1 / 16)
    assert (graph.activation, graph.tied_head, graph.eos_token_ids) == ("gelu_tanh", True, (1, 107))


def test_gemma_3_as_published() -> None:
    graph = walk(GEMMA3)
    assert [layer.window for layer in graph.layers[:7]] == [512] * 5 + [0, 512]
    assert [layer.rope for layer in graph.layers[:7]] == [1] * 5 + [0, 1]
    assert [rope.theta for rope in graph.ropes] == [1e6, 1e4]
    assert graph.layers[0].q_norm is not None
    assert (graph.logits_cap, graph.score_cap) == (0, 0)


def test_gemma_3_scales_the_global_rope_only() -> None:
    graph = walk(GEMMA3 | {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}})
    assert [(rope.kind, rope.factor) for rope in graph.ropes] == [("linear", 8.0), ("default", 1.0)]


GLM4: dict[str, Any] = {
    "architectures": ["Glm4ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 13696, "max_position_embeddings": 32768, "model_type": "glm4",
    "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 2, "pad_token_id": 151329,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.52.0.dev0", "use_cache": True, "vocab_size": 151552,
}  # fmt: skip
EXAONE4: dict[str, Any] = {
    "architectures": ["Exaone4ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 361,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 27392,
    "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 16, "max_position_embeddings": 131072,
    "model_type": "exaone4", "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8,
    "pad_token_id": 0, "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 1000000, "sliding_window": 4096, "sliding_window_pattern": "LLLG", "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.54.0.dev0", "use_cache": True, "vocab_size": 102400,
}  # fmt: skip


def test_glm_4_as_published() -> None:
    graph = walk(GLM4)
    assert (graph.rope.dim, graph.head_dim, graph.eos_token_ids) == (64, 128, (151329, 151336, 151338))
    assert [ref.name for ref in graph.paired[:2]] == [
        f"model.layers.0.self_attn.{name}_proj.weight" for name in ("q", "k")
    ]
    assert [fused.ref.name for fused in graph.fused[:2]] == [
        f"model.layers.{index}.mlp.gate_up_proj.weight" for index in range(2)
    ]
    assert len(graph.layers[0].norms()) == 4


def test_glm_rotates_half_a_head_where_its_config_does_not_say() -> None:
    assert walk({key: value for key, value in GLM4.items() if key != "partial_rotary_factor"}).rope.dim == 64


def test_exaone_4_as_published() -> None:
    graph = walk(EXAONE4)
    assert [layer.window for layer in graph.layers[:5]] == [4096, 4096, 4096, 0, 4096]
    assert [layer.rope for layer in graph.layers[:5]] == [0, 0, 0, None, 0]
    small = walk(EXAONE4 | {"sliding_window": None, "sliding_window_pattern": None, "layer_types": None})
    assert {(layer.window, layer.rope) for layer in small.layers} == {(0, 0)}


def test_cwm_scales_its_rope_unless_told_otherwise() -> None:
    config = config_of("cwm") | {"rope_parameters": None}
    assert (walk(config).rope.kind, walk(config).rope.theta, walk(config).rope.factor) == ("llama3", 1e6, 16.0)
    assert walk(config | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}).rope.kind == "linear"


def test_hyperclovax_as_published_names_code_that_transformers_has() -> None:
    auto_map = {"AutoModelForCausalLM": "modeling_hyperclovax.HyperCLOVAXForCausalLM"}
    graph = walk(config_of("hyperclovax") | {"auto_map": auto_map})
    assert (graph.logits_divisor, len(graph.layers[0].norms())) == (8.0, 4)
    assert walk(config_of("hyperclovax") | {"use_post_norm": False}).layers[0].post_attn_norm is None


ERNIE45: dict[str, Any] = {
    "architectures": ["Ernie4_5_ForCausalLM"],
    "auto_map": {
        "AutoConfig": "configuration_ernie4_5.Ernie4_5_Config", "AutoModel": "modeling_ernie4_5.Ernie4_5_Model",
        "AutoModelForCausalLM": "modeling_ernie4_5.Ernie4_5_ForCausalLM",
    },
    "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3072, "max_position_embeddings": 131072, "model_type": "ernie4_5", "num_attention_heads": 16,
    "num_hidden_layers": 18, "num_key_value_heads": 2, "pad_token_id": 0, "rms_norm_eps": 1e-05, "rope_theta": 500000,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_bias": False, "use_cache": False,
    "vocab_size": 103424,
}  # fmt: skip


def test_ernie_45_as_first_published() -> None:
    """Under the name that Baidu's own code had; transformers' class is that code taken over."""
    graph = walk(ERNIE45)
    assert (graph.architecture, graph.tied_head, graph.rope.theta) == ("Ernie4_5ForCausalLM", True, 5e5)
    config = {key: value for key, value in ERNIE45.items() if key != "auto_map"}
    assert graph == walk(config | {"architectures": ["Ernie4_5ForCausalLM"]})


def test_llama_under_its_first_name() -> None:
    config = config_of("llama")
    assert walk(config | {"architectures": ["LLaMAForCausalLM"]}) == walk(config)


def test_old_names_are_of_one_family_each() -> None:
    names = [name for family in FAMILIES.values() for name in (family.architecture, *family.old_names)]
    assert len(set(names)) == len(names)
    assert not set(names) & set(REASONS)


def test_qwen_25_base_and_r1_distill_say_that_they_have_no_mrope() -> None:
    assert walk(QWEN25 | {"use_mrope": False}) == walk(QWEN25)
    with pytest.raises(UnsupportedModelError, match="use_mrope = True is not supported; supported: False or null"):
        walk(QWEN25 | {"use_mrope": True})


def test_old_gemma_says_gelu_and_means_its_approximation() -> None:
    graph = walk(config_of("gemma") | {"hidden_act": "gelu", "hidden_activation": None})
    assert graph.activation == "gelu_tanh"


@pytest.mark.parametrize("case", CASES)
def test_everything_transformers_writes_is_known(case: str) -> None:
    graph = walk(config_of(case))
    assert isinstance(graph, ModelGraph)
    assert graph.architecture == CASES[case].class_name


def config_of(case: str) -> dict[str, Any]:
    """The config that transformers writes for a case."""
    config: dict[str, Any] = transformers_config(CASES[case]).to_dict()
    return config | {"architectures": [CASES[case].class_name]}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("mistral", {"attention_bias": True}, "attention_bias = True is not supported"),
    (
        "mistral",
        {"sliding_window": 1},
        "sliding_window = 1 is not supported; supported: null or an integer of at least 2",
    ),
    ("mistral", {"hidden_act": "gelu"}, 'hidden_act = "gelu" is not supported; supported: silu or swish'),
    ("mistral", {"final_logit_softcapping": 30.0}, "final_logit_softcapping = 30.0"),
    ("mistral", {"attention_sinks": 4}, "attention_sinks = 4 is a field that amk does not know"),
    ("ministral", {"layer_types": ["full_attention"]}, "1 entries for num_hidden_layers = 4"),
    ("ministral", {"layer_types": ["chunked_attention"] * 4}, "full_attention and sliding_attention"),
    ("qwen2", {"use_sliding_window": 1}, "use_sliding_window = 1"),
    ("qwen3", {"num_experts": 64}, "num_experts = 64 is not supported; supported: 0 or null"),
    ("phi3", {"auto_map": {"AutoModelForCausalLM": "modeling_mine.Phi3ForCausalLM"}}, "its own Python code"),
    ("phi3-longrope", {"partial_rotary_factor": 1.5, "rope_parameters": None}, "partial_rotary_factor = 1.5"),
    ("phi3-longrope", {"rope_parameters": {"rope_type": "longrope", "long_factor": [1.0] * 8}}, "short_factor = null"),
    ("smollm3", {"no_rope_layers": [1, 0]}, "no_rope_layers = .* null or 4 times 0 or 1"),
    ("granite", {"residual_multiplier": 0}, "residual_multiplier = 0 .* a positive number"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
    ("gemma2", {"hidden_activation": "gelu"}, 'hidden_activation = "gelu"'),
    ("gemma2", {"attn_logit_softcapping": -1.0}, "attn_logit_softcapping = -1.0"),
    ("gemma3", {"rope_parameters": {"full_attention": {"rope_type": "magic"}}}, 'rope_type = "magic"'),
    ("olmo3", {"rope_parameters": YARN}, "rope_parameters = .* settings of full_attention and sliding_attention"),
    ("gemma3", {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "different versions of transformers"),
    ("olmo2", {"clip_qkv": 8.0}, "clip_qkv = 8.0 is a field that amk does not know"),
    ("olmo2", {"rope_scaling": {"type": "yarn", "factor": 2.0, "beta": 3}}, "rope"),
    ("exaone4", {"layer_types": None, "sliding_window_pattern": "LLLG"}, 'sliding_window_pattern = "LLLG" .* integer'),
    ("ernie45", {"use_bias": "no"}, 'use_bias = "no"'),
    ("cwm", {"attention_bias": True}, "attention_bias = True is not supported"),
    ("llama", {"layer_types": 4}, "layer_types = 4 is not supported"),
    ("llama", {"layer_types": [["full_attention"]]}, "layer_types = .* is not supported"),
    ("mistral", {"auto_map": "modeling_mine.Mistral"}, "its own Python code"),
]


@pytest.mark.parametrize(("case", "changes", "message"), REFUSED, ids=lambda item: str(item)[:50])
def test_what_a_family_refuses(case: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        walk(config_of(case) | changes)
    assert "\n" not in str(caught.value)


ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, math.nan, math.inf, "", "x", [], [[1]], {}, {"x": [1]}, [None], 10**400,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_odd_values_are_refused_or_mean_nothing(case: str) -> None:
    """Whatever a field holds, walking either works or names what is wrong."""
    config = config_of(case) | {"rope_scaling": None, "auto_map": None, "quantization_config": None}
    rope = config.pop("rope_parameters")
    for name in config:
        for value in ODD:
            _try(config | {"rope_parameters": rope, name: value})
    for value in ODD:
        _try(config | {"rope_parameters": value})
        for name in rope:
            _try(config | {"rope_parameters": rope | {name: value}})


def _try(config: dict[str, Any]) -> None:
    with contextlib.suppress(UnsupportedModelError):
        walk(config)


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("MixtralForCausalLM", "mixture of experts"),
        ("GptOssForCausalLM", "attention sinks"),
        ("DeepseekV3ForCausalLM", "latent attention"),
        ("Starcoder2ForCausalLM", "LayerNorm"),
        ("Gemma3ForConditionalGeneration", "multimodal"),
        ("Mistral3ForConditionalGeneration", "multimodal"),
        ("Qwen2_5_VLForConditionalGeneration", "multimodal"),
        ("T5ForConditionalGeneration", "encoder-decoder"),
        ("Gemma3nForCausalLM", "per-layer embeddings"),
        ("Ministral3ForCausalLM", "scales its queries"),
        ("HunYuanDenseV1ForCausalLM", "after rotating"),
        ("ArceeForCausalLM", "no gate"),
        ("MiniCPMForCausalLM", "no code of its own"),
        ("ExaoneForCausalLM", "no code of its own"),
        ("ChatGLMModel", "no code of its own"),
        ("YiForCausalLM", "no code of its own"),
        ("MiniMaxM3VLForCausalLM", "multimodal"),
        ("BertLMHeadModel", "fill gaps"),
        ("Mamba2ForCausalLM", "recurrent or state-space"),
        ("NoSuchForCausalLM", "does not implement it yet"),
    ],
)
def test_other_architectures_are_refused_by_name(architecture: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"architecture {architecture} is not supported: .*{reason}"):
        walk({"architectures": [architecture], "model_type": "x"})


def test_every_family_has_a_case_and_a_real_size() -> None:
    assert {case.class_name for case in CASES.values()} == set(FAMILIES)
    assert {config["architectures"][0] for config in CONFIGS.values()} == set(FAMILIES) - {"LlamaForCausalLM"}


def test_no_family_is_refused_too() -> None:
    assert not set(FAMILIES) & set(REASONS)


def test_known_architectures_are_refused_for_a_reason() -> None:
    """Every causal language model of transformers that there was when the table was made."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    unknown = {name for name in NAMES.values() if name not in FAMILIES and "yet" in refusal_reason(name)}
    assert len(unknown) < len(NAMES) // 10, sorted(unknown)  # a newer transformers may have a few more
