"""A small random model of each family, and what of the family it shows. The README's table is made from these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

COMMON: dict[str, Any] = {
    "vocab_size": 503,
    "hidden_size": 72,
    "intermediate_size": 136,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": None,
}
WINDOW = 24
"""Smaller than the prompt of every test, not a multiple of a K/V block."""

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}


def longrope(pairs: int) -> dict[str, Any]:
    """LongRoPE settings for `pairs` rotated pairs."""
    return {
        "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 64,
        "short_factor": [1.0 + 0.05 * i for i in range(pairs)],
        "long_factor": [1.5 + 0.5 * i for i in range(pairs)],
    }  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A model: transformers' class prefix, config changes, and the row of the README's table that it belongs to."""

    family: str
    models: str
    shows: str
    prefix: str
    changes: dict[str, Any] = field(default_factory=dict)
    architecture: str = ""

    @property
    def class_name(self) -> str:
        """The architecture as config.json names it."""
        return self.architecture or f"{self.prefix}ForCausalLM"

    @property
    def config_name(self) -> str:
        """transformers' config class."""
        return f"{self.prefix}Config"

    def config(self) -> dict[str, Any]:
        """What the config is made with."""
        return {key: value for key, value in (COMMON | self.changes).items() if value is not ...}


_LLAMA = "Llama 1 to 3.3, SmolLM2, TinyLlama, Yi, Falcon3, DeepSeek-R1-Distill-Llama"
_SLIDING = ["sliding_attention", "full_attention"] * 2
CASES: dict[str, Case] = {
    "llama": Case("Llama", _LLAMA, "grouped queries", "Llama"),
    "llama-bias": Case(
        "Llama", _LLAMA, "biases", "Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama-llama3": Case("Llama", _LLAMA, "llama3 RoPE", "Llama", {"rope_parameters": LLAMA3}),
    "llama-linear": Case("Llama", _LLAMA, "linear RoPE", "Llama", {"rope_parameters": LINEAR}),
    "llama-dynamic": Case(
        "Llama", _LLAMA, "dynamic RoPE", "Llama", {"rope_parameters": DYNAMIC, "max_position_embeddings": 64}
    ),
    "mistral": Case("Mistral", "Mistral 7B, Nemo, Small", "sliding window", "Mistral", {"sliding_window": WINDOW}),
    "mistral-full": Case(
        "Mistral", "Mistral 7B, Nemo, Small", "no window", "Mistral",
        {"sliding_window": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    "ministral": Case(
        "Ministral", "Ministral 8B", "windows in some layers", "Ministral",
        {"sliding_window": WINDOW, "layer_types": ["full_attention", *["sliding_attention"] * 3]},
    ),
    "qwen2": Case("Qwen2", "Qwen2, Qwen2.5", "q/k/v bias", "Qwen2", {"tie_word_embeddings": True, "head_dim": ...,
                                                                     "hidden_size": 96}),
    "qwen2-yarn": Case("Qwen2", "Qwen2, Qwen2.5", "yarn RoPE", "Qwen2", {"rope_parameters": YARN}),
    "qwen2-window": Case(
        "Qwen2", "Qwen2, Qwen2.5", "windows in the upper layers", "Qwen2",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2},
    ),
    "qwen3": Case("Qwen3", "Qwen3 (dense)", "q/k norm", "Qwen3", {"tie_word_embeddings": True}),
    "qwen3-bias": Case(
        "Qwen3", "Qwen3 (dense)", "q/k norm over 5 x 16 dimensions", "Qwen3", {"attention_bias": True, "head_dim": 80}
    ),
    "phi3": Case("Phi-3", "Phi-3, 3.5, 4, 4-mini", "fused tensors, window", "Phi3",
                 {"head_dim": ..., "hidden_size": 96, "sliding_window": WINDOW}),
    "phi3-longrope": Case(
        "Phi-3", "Phi-3, 3.5, 4, 4-mini", "partial LongRoPE", "Phi3",
        {
            "head_dim": ..., "hidden_size": 96, "partial_rotary_factor": 0.75, "rope_parameters": longrope(6),
            "original_max_position_embeddings": 64,
        },
    ),
    "smollm3": Case("SmolLM3", "SmolLM3", "layers without RoPE", "SmolLM3"),
    "granite": Case(
        "Granite", "Granite 3", "four multipliers", "Granite",
        {
            "embedding_multiplier": 12.0, "attention_multiplier": 0.15, "residual_multiplier": 0.22,
            "logits_scaling": 8.0, "tie_word_embeddings": True, "head_dim": ..., "hidden_size": 96,
        },
    ),
    "olmo2": Case("OLMo 2", "OLMo 2", "norms after, q/k norm over all heads", "Olmo2",
                  {"head_dim": ..., "hidden_size": 96}),
    "olmo3": Case(
        "OLMo 3", "OLMo 3", "norms after, windows, yarn in the other layers", "Olmo3",
        {
            "head_dim": ..., "hidden_size": 96, "sliding_window": WINDOW,
            "rope_parameters": {
                "full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "gemma": Case("Gemma", "Gemma 1, CodeGemma", "1 + w norms, GeGLU, scaled embedding", "Gemma"),
    "gemma2": Case(
        "Gemma 2", "Gemma 2", "four norms, soft caps, alternating windows", "Gemma2",
        {
            "sliding_window": WINDOW, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gemma3": Case(
        "Gemma 3", "Gemma 3 text (270M, 1B)", "local layers with their own RoPE", "Gemma3Text",
        {
            "sliding_window": WINDOW, "query_pre_attn_scalar": 24, "layer_types": _SLIDING,
            "rope_parameters": {
                "full_attention": LINEAR | {"rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        "Gemma3ForCausalLM",
    ),
    "vaultgemma": Case(
        "VaultGemma", "VaultGemma", "soft caps, alternating windows", "VaultGemma",
        {
            "sliding_window": WINDOW, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "glm": Case("GLM", "GLM-4-9B, GLM-Edge", "half of neighbouring pairs rotated, fused gate and up", "Glm"),
    "glm4": Case(
        "GLM-4", "GLM-4-0414 (9B, 32B), GLM-Z1", "neighbouring pairs, four norms", "Glm4",
        {"attention_bias": False, "num_key_value_heads": 3},
    ),
    "helium": Case("Helium", "Helium 1", "neighbouring pairs", "Helium", {"hidden_size": 96}),
    "ernie45": Case("ERNIE 4.5", "ERNIE 4.5 (dense)", "neighbouring pairs, biases", "Ernie4_5", {"use_bias": True}),
    "exaone4": Case(
        "EXAONE 4", "EXAONE 4.0 (1.2B, 32B)", "norms after, q/k norm, windows, RoPE in these layers only", "Exaone4",
        {"sliding_window": WINDOW, "sliding_window_pattern": 4},
    ),
    "exaone4-full": Case(
        "EXAONE 4", "EXAONE 4.0 (1.2B, 32B)", "no window", "Exaone4",
        {"sliding_window": None, "layer_types": ["full_attention"] * 4, "rope_parameters": LLAMA3},
    ),
    "seed-oss": Case("Seed-OSS", "Seed-OSS 36B", "q/k/v bias", "SeedOss"),
    "seed-oss-bias": Case(
        "Seed-OSS", "Seed-OSS 36B", "no bias but that of o", "SeedOss",
        {"attention_bias": False, "attention_out_bias": True},
    ),
    "cwm": Case(
        "CWM", "Code World Model 32B", "windows in three of four layers, llama3 RoPE", "Cwm",
        {"hidden_size": 96, "sliding_window": WINDOW, "rope_parameters": LLAMA3},
    ),
    "hyperclovax": Case(
        "HyperCLOVA X", "HyperCLOVA X SEED", "four norms, four multipliers", "HyperCLOVAX",
        {
            "hidden_size": 96, "embedding_multiplier": 12.0, "attention_multiplier": 0.15, "residual_multiplier": 0.22,
            "logits_scaling": 0.125,
        },
    ),
}  # fmt: skip
