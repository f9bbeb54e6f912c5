"""Mistral (arXiv 2310.06825) and Ministral: Llama with a sliding window, in Ministral not in every layer."""

from __future__ import annotations

from amk.model.config import Config
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

_DEFAULTS = {
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "eos_token_id": 2, "hidden_act": "silu",
    "num_key_value_heads": 8, "sliding_window": 4096,
}  # fmt: skip


def _mistral(config: Config, sizes: Sizes) -> Traits:
    return Traits(windows=(window_of(config),) * sizes.layers, activation=activation_of(config, "hidden_act", **SILU))


def _ministral(config: Config, sizes: Sizes) -> Traits:
    sliding = sliding_layers(config, sizes.layers, lambda _: True)
    return Traits(
        windows=windows_of(sliding, window_of(config)), activation=activation_of(config, "hidden_act", **SILU)
    )


MISTRAL = Family("MistralForCausalLM", "mistral", _mistral, _DEFAULTS, reads=frozenset(("sliding_window",)))
MINISTRAL = Family(
    "MinistralForCausalLM", "ministral", _ministral, _DEFAULTS, reads=frozenset(("sliding_window", "layer_types"))
)
