"""Granite 3 (github.com/ibm-granite/granite-3.0-language-models): Llama with four multipliers (arXiv 2203.03466)."""

from __future__ import annotations

from amk.model.config import Config, read_bool, read_float
from amk.model.families.family import SILU, Family, Sizes, Traits, activation_of


def _granite(config: Config, sizes: Sizes) -> Traits:
    bias = read_bool(config, "attention_bias", False)
    return Traits(
        qkv_bias=bias,
        o_bias=bias,
        mlp_bias=read_bool(config, "mlp_bias", False),
        activation=activation_of(config, "hidden_act", **SILU),
        attention_scale=read_float(config, "attention_multiplier", 1.0),
        scalars={
            "embed_scale": read_float(config, "embedding_multiplier", 1.0),
            "residual_multiplier": read_float(config, "residual_multiplier", 1.0),
            "logits_divisor": read_float(config, "logits_scaling", 1.0),
        },
    )


GRANITE = Family(
    "GraniteForCausalLM",
    "granite",
    _granite,
    {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "eos_token_id": 2, "hidden_act": "silu"},
    reads=frozenset(
        (
            "attention_bias",
            "mlp_bias",
            "attention_multiplier",
            "embedding_multiplier",
            "residual_multiplier",
            "logits_scaling",
        )
    ),
)
