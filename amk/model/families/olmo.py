"""OLMo 2 (arXiv 2501.00656): norms after attention and MLP, q and k normed over all heads. OLMo 3: windows besides."""

from __future__ import annotations

from amk.model.config import Config, read_bool
from amk.model.families.family import (
    SILU,
    Family,
    Sizes,
    Traits,
    activation_of,
    sliding_layers,
    window_of,
    windows_of,
)
from amk.model.graph import Rope
from amk.model.rope_config import parse_ropes_by_layer_type

_DEFAULTS = {
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "eos_token_id": 50279, "hidden_act": "silu",
}  # fmt: skip
_THETA = 500000.0  # Olmo3Config's default


def _traits(config: Config, windows: tuple[int, ...] = (), ropes: tuple[int | None, ...] = ()) -> Traits:
    bias = read_bool(config, "attention_bias", False)
    return Traits(
        qkv_bias=bias,
        o_bias=bias,
        attn_norm=None,
        mlp_norm=None,
        post_attn_norm="post_attention_layernorm",
        post_mlp_norm="post_feedforward_layernorm",
        qk_norm="projection",
        windows=windows,
        ropes=ropes,
        activation=activation_of(config, "hidden_act", **SILU),
    )


def _olmo2(config: Config, sizes: Sizes) -> Traits:
    return _traits(config)


def _olmo3(config: Config, sizes: Sizes) -> Traits:
    sliding = sliding_layers(config, sizes.layers, lambda index: (index + 1) % 4 != 0)
    return _traits(config, windows_of(sliding, window_of(config)), tuple(int(flag) for flag in sliding))


def _olmo3_ropes(config: Config, sizes: Sizes) -> tuple[Rope, Rope]:
    return parse_ropes_by_layer_type(config, sizes.head_dim, sizes.max_position, _THETA, _THETA)


OLMO2 = Family("Olmo2ForCausalLM", "olmo2", _olmo2, _DEFAULTS, reads=frozenset(("attention_bias",)))
OLMO3 = Family(
    "Olmo3ForCausalLM",
    "olmo3",
    _olmo3,
    _DEFAULTS | {"sliding_window": 4096},
    reads=frozenset(("attention_bias", "sliding_window", "layer_types")),
    ropes=_olmo3_ropes,
)
