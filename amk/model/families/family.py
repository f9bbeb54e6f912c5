"""How a family of models is described: what its config fields mean, and how its layers differ from Llama's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from amk.errors import UnsupportedModelError
from amk.model.config import Config, read_bool, refused_value, show
from amk.model.graph import Rope
from amk.model.rope_config import parse_rope

QkNorm = Literal["none", "head", "projection"]


@dataclass(frozen=True)
class Sizes:
    """Sizes in elements, read for every family in the same way."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    max_position: int


@dataclass(frozen=True)
class Traits:
    """Where a model differs from LlamaForCausalLM; the defaults are Llama's.

    The `*_norm` fields name the norm's module in a layer, None where there is none. `windows` and `ropes` have an entry
    for each layer, or are empty: see `Layer`. `scalars` are fields of `ModelGraph`. `fused_qkv` and `fused_mlp` say
    that q, k, v, or gate and up, are stored as one tensor; `paired` that rows of q and k are: see `ModelGraph`.
    """

    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    fused_qkv: bool = False
    fused_mlp: bool = False
    paired: bool = False
    attn_norm: str | None = "input_layernorm"
    mlp_norm: str | None = "post_attention_layernorm"
    post_attn_norm: str | None = None
    post_mlp_norm: str | None = None
    qk_norm: QkNorm = "none"
    windows: tuple[int, ...] = ()
    ropes: tuple[int | None, ...] = ()
    activation: str = "silu"
    attention_scale: float | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)


def one_rope(config: Config, sizes: Sizes) -> tuple[Rope, Rope | None]:
    """(the rotary embedding of all layers, no other)."""
    return parse_rope(config, sizes.head_dim, sizes.max_position), None


@dataclass(frozen=True)
class Family:
    """An architecture of transformers. `defaults` are its config class's own, for fields that config.json leaves out.

    `reads` are the fields that `traits` and `ropes` read besides those that the walker reads for every family;
    `old_names` are names that older configs give the same class, `own_code` the names in `auto_map` of code that
    transformers has taken over.
    """

    architecture: str
    model_type: str
    traits: Callable[[Config, Sizes], Traits]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    ropes: Callable[[Config, Sizes], tuple[Rope, Rope | None]] = one_rope
    own_code: frozenset[str] = frozenset()
    old_names: frozenset[str] = frozenset()


def activation_of(config: Config, name: str, **choices: str) -> str:
    """The activation that a config field names, as amk calls it; `choices` are keyed by what transformers calls it."""
    value = config.get(name)
    if not isinstance(value, str) or value not in choices:
        raise refused_value(name, value, " or ".join(choices))
    return choices[value]


LLAMA_DEFAULTS: dict[str, Any] = {
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "eos_token_id": 2, "hidden_act": "silu",
}  # fmt: skip
"""What transformers takes where a config leaves these out; families state where they differ."""


def llama_like(config: Config, **differs: Any) -> Traits:
    """Llama's traits with the biases that the config asks for, and fields of `Traits` where the family differs.

    Where a family has no such bias, the field is not among its `reads`, and a config that asks for it was refused.
    """
    bias = read_bool(config, "attention_bias", False)
    mlp_bias = read_bool(config, "mlp_bias", False)
    return replace(Traits(qkv_bias=bias, o_bias=bias, mlp_bias=mlp_bias, activation=silu(config)), **differs)


def silu(config: Config) -> str:
    """The activation of a family that has no other. Raises UnsupportedModelError where `hidden_act` asks for one."""
    return activation_of(config, "hidden_act", silu="silu", swish="silu")


def window_of(config: Config, name: str = "sliding_window") -> int:
    """The sliding window in positions, 0 for none. Raises UnsupportedModelError."""
    value = config.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 2:
        raise refused_value(name, value, "null or an integer of at least 2")
    return value


def sliding_layers(config: Config, layers: int, default: Callable[[int], bool]) -> tuple[bool, ...]:
    """Which layers see a window only: from `layer_types` where the config has them, else `default(index)`."""
    types = config.get("layer_types")
    if types is None:
        return tuple(default(index) for index in range(layers))
    known = ("full_attention", "sliding_attention")
    if not isinstance(types, list | tuple) or not all(kind in known for kind in types):
        raise refused_value("layer_types", types, "full_attention and sliding_attention")
    if len(types) != layers:
        raise UnsupportedModelError(
            f"config.json: layer_types = {show(types)} has {len(types)} entries for num_hidden_layers = {layers}; "
            "give one per layer"
        )
    return tuple(kind == "sliding_attention" for kind in types)


def windows_of(config: Config, sliding: tuple[bool, ...]) -> tuple[int, ...]:
    """The window of each layer: the config's where it slides, else none."""
    window = window_of(config)
    return tuple(window if is_sliding else 0 for is_sliding in sliding)
