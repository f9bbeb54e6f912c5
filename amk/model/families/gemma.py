"""Gemma 1, 2 and 3 text (arXiv 2403.08295, 2408.00118, 2503.19786), VaultGemma (arXiv 2510.15001).

All: norms that multiply by 1 + weight, GeGLU, an embedding scaled by sqrt(hidden). Gemma 2: norms before and after,
soft caps, a window in every other layer. VaultGemma: Gemma 2 without the norms after. Gemma 3: q and k normed instead
of caps, five local layers to a global one, with a rotary base of their own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from amk.model.config import Config, read_bool, read_float, read_int, read_number
from amk.model.families.family import (
    LLAMA_DEFAULTS,
    Family,
    Sizes,
    Traits,
    activation_of,
    sliding_layers,
    windows_of,
)
from amk.model.graph import Rope
from amk.model.rope_config import parse_ropes_by_layer_type

_DEFAULTS = LLAMA_DEFAULTS | {
    "max_position_embeddings": 8192, "eos_token_id": 1, "tie_word_embeddings": True, "head_dim": 256,
}  # fmt: skip
_DEFAULTS_2 = _DEFAULTS | {
    "num_key_value_heads": 4, "sliding_window": 4096, "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
}  # fmt: skip
_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
_READS_2 = frozenset(
    (
        "attention_bias",
        "hidden_activation",
        "query_pre_attn_scalar",
        "sliding_window",
        "layer_types",
        "attn_logit_softcapping",
        "final_logit_softcapping",
    )
)
_GELU = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0  # Gemma3TextConfig's defaults


def _scalars(config: Config, sizes: Sizes) -> dict[str, float]:
    return {
        "norm_offset": 1.0,
        "embed_scale": math.sqrt(sizes.hidden),
        "logits_cap": read_number(config, "final_logit_softcapping", 0.0),
        "score_cap": read_number(config, "attn_logit_softcapping", 0.0),
    }


def _gemma(config: Config, sizes: Sizes) -> Traits:
    """The first releases say "gelu" and mean its tanh approximation, as transformers knows too."""
    bias = read_bool(config, "attention_bias", False)
    name = "hidden_act" if config.get("hidden_activation") is None else "hidden_activation"
    activation = activation_of(config, name, gelu="gelu_tanh", **_GELU)
    scalars = {"norm_offset": 1.0, "embed_scale": math.sqrt(sizes.hidden)}
    return Traits(qkv_bias=bias, o_bias=bias, activation=activation, scalars=scalars)


def _gemma2(config: Config, sizes: Sizes) -> Traits:
    return _four_norms(config, sizes, sliding_layers(config, sizes.layers, lambda index: index % 2 == 0))


def _vault_gemma(config: Config, sizes: Sizes) -> Traits:
    return replace(_gemma2(config, sizes), post_attn_norm=None, post_mlp_norm=None)


def _four_norms(config: Config, sizes: Sizes, sliding: tuple[bool, ...]) -> Traits:
    bias = read_bool(config, "attention_bias", False)
    return Traits(
        qkv_bias=bias,
        o_bias=bias,
        post_attn_norm="post_attention_layernorm",
        mlp_norm="pre_feedforward_layernorm",
        post_mlp_norm="post_feedforward_layernorm",
        windows=windows_of(config, sliding),
        activation=activation_of(config, "hidden_activation", **_GELU),
        attention_scale=read_float(config, "query_pre_attn_scalar") ** -0.5,
        scalars=_scalars(config, sizes),
    )


def _sliding_3(config: Config, sizes: Sizes) -> tuple[bool, ...]:
    """`_sliding_window_pattern` is what transformers notes for itself; it does not read it, and writes layer_types."""
    pattern = read_int(config, "sliding_window_pattern", 6)
    return sliding_layers(config, sizes.layers, lambda index: (index + 1) % pattern != 0)


def _gemma3(config: Config, sizes: Sizes) -> Traits:
    sliding = _sliding_3(config, sizes)
    traits = _four_norms(config, sizes, sliding)
    return replace(traits, qk_norm="head", ropes=tuple(int(flag) for flag in sliding))


def _gemma3_ropes(config: Config, sizes: Sizes) -> tuple[Rope, Rope]:
    return parse_ropes_by_layer_type(config, sizes.head_dim, sizes.max_position, _THETA, _LOCAL_THETA)


GEMMA = Family(
    "GemmaForCausalLM",
    "gemma",
    _gemma,
    _DEFAULTS | {"num_key_value_heads": 16, "hidden_act": "gelu_pytorch_tanh"},
    reads=frozenset(("attention_bias", "hidden_activation")),
)
GEMMA2 = Family(
    "Gemma2ForCausalLM",
    "gemma2",
    _gemma2,
    _DEFAULTS_2 | _CAPS,
    reads=_READS_2,
)
VAULT_GEMMA = Family(
    "VaultGemmaForCausalLM",
    "vaultgemma",
    _vault_gemma,
    _DEFAULTS_2 | _CAPS,
    reads=_READS_2,
)
GEMMA3 = Family(
    "Gemma3ForCausalLM",
    "gemma3_text",
    _gemma3,
    _DEFAULTS_2 | {"max_position_embeddings": 131072},
    reads=_READS_2 | {"rope_local_base_freq", "sliding_window_pattern", "_sliding_window_pattern"},
    ropes=_gemma3_ropes,
)
