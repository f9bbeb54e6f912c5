"""Llama (arXiv 2302.13971, 2307.09288, 2407.21783), and what uses its class: SmolLM2, TinyLlama, Yi, Falcon3."""

from __future__ import annotations

from amk.model.config import Config, read_bool
from amk.model.families.family import SILU, Family, Sizes, Traits, activation_of


def _llama(config: Config, sizes: Sizes) -> Traits:
    bias = read_bool(config, "attention_bias", False)
    activation = activation_of(config, "hidden_act", **SILU)
    return Traits(qkv_bias=bias, o_bias=bias, mlp_bias=read_bool(config, "mlp_bias", False), activation=activation)


LLAMA = Family(
    "LlamaForCausalLM",
    "llama",
    _llama,
    {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "eos_token_id": 2, "hidden_act": "silu"},
    reads=frozenset(("attention_bias", "mlp_bias")),
)
