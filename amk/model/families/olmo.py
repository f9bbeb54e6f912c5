"""Norms after attention and MLP instead of before, and q and k normed: OLMo 2 and 3, EXAONE 4.

OLMo 2 (arXiv 2501.00656) norms all heads of q and k together; OLMo 3 has windows besides. EXAONE 4 (arXiv 2507.11407)
norms each head, and rotates only in the layers that slide, or in all where none does.
"""

from __future__ import annotations

from typing import Any

from amk.model.config import Config, read_int
from amk.model.families.family import (
    LLAMA_DEFAULTS,
    Family,
    Sizes,
    Traits,
    llama_like,
    sliding_layers,
    window_of,
    windows_of,
)
from amk.model.graph import Rope
from amk.model.rope_config import parse_ropes_by_layer_type

_DEFAULTS = LLAMA_DEFAULTS | {"rms_norm_eps": 1e-5}
_THETA = 500000.0  # Olmo3Config's default


def _norms_after(config: Config, **differs: Any) -> Traits:
    return llama_like(
        config,
        attn_norm=None,
        mlp_norm=None,
        post_attn_norm="post_attention_layernorm",
        post_mlp_norm="post_feedforward_layernorm",
        **differs,
    )


def _olmo2(config: Config, sizes: Sizes) -> Traits:
    return _norms_after(config, qk_norm="projection")


def _olmo3(config: Config, sizes: Sizes) -> Traits:
    sliding = sliding_layers(config, sizes.layers, lambda index: (index + 1) % 4 != 0)
    ropes = tuple(int(flag) for flag in sliding)
    return _norms_after(config, qk_norm="projection", windows=windows_of(config, sliding), ropes=ropes)


def _olmo3_ropes(config: Config, sizes: Sizes) -> tuple[Rope, Rope]:
    return parse_ropes_by_layer_type(config, sizes.head_dim, sizes.max_position, _THETA, _THETA)


def _exaone4(config: Config, sizes: Sizes) -> Traits:
    if window_of(config) == 0:
        return _norms_after(config, qk_norm="head")
    sliding = _exaone4_sliding(config, sizes)
    ropes = tuple(0 if flag else None for flag in sliding)
    return _norms_after(config, qk_norm="head", windows=windows_of(config, sliding), ropes=ropes)


def _exaone4_sliding(config: Config, sizes: Sizes) -> tuple[bool, ...]:
    """`sliding_window_pattern` counts only where there are no layer_types; published configs have both."""
    if config.get("layer_types") is not None:
        return sliding_layers(config, sizes.layers, lambda _: False)
    pattern = read_int(config, "sliding_window_pattern", 4)
    return tuple((index + 1) % pattern != 0 for index in range(sizes.layers))


OLMO2 = Family(
    "Olmo2ForCausalLM", "olmo2", _olmo2, _DEFAULTS | {"eos_token_id": 50279}, reads=frozenset(("attention_bias",))
)
OLMO3 = Family(
    "Olmo3ForCausalLM",
    "olmo3",
    _olmo3,
    _DEFAULTS | {"eos_token_id": 50279, "sliding_window": 4096},
    reads=frozenset(("attention_bias", "sliding_window", "layer_types")),
    ropes=_olmo3_ropes,
)
EXAONE4 = Family(
    "Exaone4ForCausalLM",
    "exaone4",
    _exaone4,
    _DEFAULTS | {"sliding_window": 4096, "num_key_value_heads": 32},
    reads=frozenset(("sliding_window", "sliding_window_pattern", "layer_types")),
)
