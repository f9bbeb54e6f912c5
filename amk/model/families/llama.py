"""Llama (arXiv 2302.13971, 2307.09288, 2407.21783), and what uses its class: SmolLM2, TinyLlama, Yi, Falcon3.

Seed-OSS (github.com/ByteDance-Seed/seed-oss) has a switch of its own for the bias of o. CWM (arXiv 2510.02387) sees a
window in three of four layers, the first of them whole.
"""

from __future__ import annotations

from amk.model.config import Config, read_bool
from amk.model.families.family import LLAMA_DEFAULTS, Family, Sizes, Traits, llama_like, sliding_layers, windows_of
from amk.model.graph import Rope
from amk.model.rope_config import parse_rope

_CWM_ROPE = {
    "rope_type": "llama3", "rope_theta": 1e6, "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


def _llama(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config)


def _seed_oss(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config, o_bias=read_bool(config, "attention_out_bias", False))


def _cwm(config: Config, sizes: Sizes) -> Traits:
    sliding = sliding_layers(config, sizes.layers, lambda index: index % 4 != 0)
    return llama_like(config, windows=windows_of(config, sliding))


def _cwm_ropes(config: Config, sizes: Sizes) -> tuple[Rope, None]:
    """Scaled also where the config says nothing of it."""
    silent = config.get("rope_parameters") is None and not config.get("rope_scaling")
    full = {**config, "rope_parameters": _CWM_ROPE} if silent else config
    return parse_rope(full, sizes.head_dim, sizes.max_position), None


LLAMA = Family(
    "LlamaForCausalLM",
    "llama",
    _llama,
    LLAMA_DEFAULTS,
    reads=frozenset(("attention_bias", "mlp_bias")),
    old_names=frozenset(("LLaMAForCausalLM",)),
)
SEED_OSS = Family(
    "SeedOssForCausalLM",
    "seed_oss",
    _seed_oss,
    LLAMA_DEFAULTS
    | {"max_position_embeddings": 524288, "num_key_value_heads": 8, "attention_bias": True, "head_dim": 128},
    reads=frozenset(("attention_bias", "attention_out_bias", "mlp_bias")),
)
CWM = Family(
    "CwmForCausalLM",
    "cwm",
    _cwm,
    LLAMA_DEFAULTS
    | {
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "eos_token_id": [128001, 128008, 128009],
        "num_key_value_heads": 8, "head_dim": 128, "rope_theta": 1e6, "sliding_window": 8192,
    },
    reads=frozenset(("mlp_bias", "sliding_window", "layer_types")),
    ropes=_cwm_ropes,
)  # fmt: skip
