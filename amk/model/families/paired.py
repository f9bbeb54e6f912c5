"""Families that rotate neighbouring dimensions, (2i, 2i + 1): GLM, Helium, ERNIE 4.5 (dense).

Rotation of pairs is the same computation whichever dimensions make a pair, as long as q and k agree: with the rows of q
and k in another order, pairs are half a head apart, as everywhere else here.
"""

from __future__ import annotations

from typing import Any

from amk.model.config import Config, read_bool
from amk.model.families.family import LLAMA_DEFAULTS, Family, Sizes, Traits, llama_like
from amk.model.graph import Rope
from amk.model.rope_config import parse_rope

_GLM_DEFAULTS = LLAMA_DEFAULTS | {
    "max_position_embeddings": 131072, "rms_norm_eps": 1.5625e-07, "eos_token_id": [151329, 151336, 151338],
    "num_key_value_heads": 2, "head_dim": 128, "attention_bias": True, "partial_rotary_factor": 0.5,
}  # fmt: skip


def _glm(config: Config, sizes: Sizes, **differs: Any) -> Traits:
    """Half of each head rotated, gate and up fused, no bias after attention."""
    return llama_like(config, paired=True, fused_mlp=True, o_bias=False, **differs)


def _glm4(config: Config, sizes: Sizes) -> Traits:
    """GLM-4-0414: norms also after attention and MLP."""
    return _glm(config, sizes, post_attn_norm="post_self_attn_layernorm", post_mlp_norm="post_mlp_layernorm")


def _partial(config: Config, sizes: Sizes) -> tuple[Rope, None]:
    return parse_rope(config, sizes.head_dim, sizes.max_position, partial=True), None


def _helium(config: Config, sizes: Sizes) -> Traits:
    return llama_like(config, paired=True, o_bias=False)


def _ernie(config: Config, sizes: Sizes) -> Traits:
    bias = read_bool(config, "use_bias", False)
    return llama_like(config, paired=True, qkv_bias=bias, o_bias=bias, mlp_bias=bias)


GLM = Family(
    "GlmForCausalLM", "glm", _glm, _GLM_DEFAULTS, reads=frozenset(("attention_bias",)), ropes=_partial
)  # fmt: skip
GLM4 = Family(
    "Glm4ForCausalLM", "glm4", _glm4, _GLM_DEFAULTS, reads=frozenset(("attention_bias",)), ropes=_partial
)  # fmt: skip
HELIUM = Family(
    "HeliumForCausalLM",
    "helium",
    _helium,
    LLAMA_DEFAULTS
    | {
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-8, "num_key_value_heads": 20, "head_dim": 128,
        "rope_theta": 1e5,
    },
    reads=frozenset(("attention_bias", "mlp_bias")),
)  # fmt: skip
ERNIE45 = Family(
    "Ernie4_5ForCausalLM",
    "ernie4_5",
    _ernie,
    LLAMA_DEFAULTS
    | {
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "num_key_value_heads": 2, "head_dim": 128,
        "rope_theta": 5e5, "tie_word_embeddings": True,
    },
    reads=frozenset(("use_bias",)),
    own_code=frozenset(
        (
            "configuration_ernie4_5.Ernie4_5_Config", "modeling_ernie4_5.Ernie4_5_Model",
            "modeling_ernie4_5.Ernie4_5_ForCausalLM",
        )
    ),
    old_names=frozenset(("Ernie4_5_ForCausalLM",)),
)  # fmt: skip
