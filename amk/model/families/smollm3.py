"""SmolLM3 (huggingface.co/blog/smollm3): Llama with every fourth layer unrotated (NoPE, arXiv 2501.18795)."""

from __future__ import annotations

from amk.model.config import Config, read_bool, read_int, refused_value
from amk.model.families.family import LLAMA_DEFAULTS, Family, Sizes, Traits, llama_like, sliding_layers, windows_of


def _smollm3(config: Config, sizes: Sizes) -> Traits:
    rotated = _rotated(config, sizes)
    ropes = tuple(0 if flag else None for flag in rotated)
    return llama_like(config, windows=_windows(config, sizes, rotated), ropes=ropes)


def _rotated(config: Config, sizes: Sizes) -> list[int]:
    """Whether each layer rotates: `no_rope_layers` says 1 for those that do."""
    flags = config.get("no_rope_layers")
    if flags is None:
        interval = read_int(config, "no_rope_layer_interval", 4)
        return [int((index + 1) % interval != 0) for index in range(sizes.layers)]
    if not isinstance(flags, list) or len(flags) != sizes.layers or not all(flag in (0, 1) for flag in flags):
        raise refused_value("no_rope_layers", flags, f"null or {sizes.layers} times 0 or 1")
    return flags


def _windows(config: Config, sizes: Sizes, rotated: list[int]) -> tuple[int, ...]:
    if not read_bool(config, "use_sliding_window", False):
        return ()
    return windows_of(config, sliding_layers(config, sizes.layers, lambda index: not rotated[index]))


SMOLLM3 = Family(
    "SmolLM3ForCausalLM",
    "smollm3",
    _smollm3,
    LLAMA_DEFAULTS
    | {
        "max_position_embeddings": 32768, "eos_token_id": 128001, "num_key_value_heads": 4, "tie_word_embeddings": True,
        "rope_theta": 2e6,
    },
    reads=frozenset(
        (
            "attention_bias", "mlp_bias", "use_sliding_window", "sliding_window", "layer_types", "no_rope_layers",
            "no_rope_layer_interval", "max_window_layers",
        )
    ),
)  # fmt: skip
