"""The walker: a config.json -> ModelGraph. Reads no weight; refuses what amk does not implement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amk.errors import UnsupportedModelError
from amk.model.architectures import family_of
from amk.model.config import Config, check_fields, read_bool, read_float, read_int, refused_value
from amk.model.families import Sizes
from amk.model.graph import Linear, ModelGraph, TensorRef
from amk.model.layers import fused_tensors, make_layers, paired_tensors

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
MOST_LAYERS = 1000
"""More than any model has."""
_NULL_IS_ABSENT = ("rope_theta", "partial_rotary_factor")
"""A null in these asks for the family's default; elsewhere it says that there is no such thing."""


def walk(config: dict[str, Any], generation_config: dict[str, Any] | None = None) -> ModelGraph:
    """The computation that `config` (a parsed config.json) describes; defaults are transformers' own.

    Raises UnsupportedModelError naming the field, its value and what is supported.
    """
    family = family_of(config)
    absent = {name for name in _NULL_IS_ABSENT if config.get(name) is None}
    full = {**family.defaults, **{name: value for name, value in config.items() if name not in absent}}
    check_fields(full, family.reads, family.own_code)
    sizes, vocab = _sizes(full), read_int(full, "vocab_size")
    traits = family.traits(full, sizes)
    rope, local_rope = family.ropes(full, sizes)
    tied = read_bool(full, "tie_word_embeddings", False)
    embed = TensorRef(EMBED, (vocab, sizes.hidden))
    layers = make_layers(traits, sizes)
    return ModelGraph(
        architecture=family.architecture,
        hidden=sizes.hidden,
        intermediate=sizes.intermediate,
        heads=sizes.heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        vocab=vocab,
        norm_eps=read_float(full, "rms_norm_eps"),
        activation=traits.activation,
        attention_scale=sizes.head_dim**-0.5 if traits.attention_scale is None else traits.attention_scale,
        max_position=sizes.max_position,
        rope=rope,
        embed=embed,
        layers=layers,
        final_norm=TensorRef("model.norm.weight", (sizes.hidden,)),
        head=Linear(embed if tied else TensorRef(HEAD, (vocab, sizes.hidden))),
        tied_head=tied,
        eos_token_ids=_eos_ids(full, generation_config, vocab),
        local_rope=local_rope,
        fused=fused_tensors(traits, layers),
        paired=paired_tensors(traits, layers),
        **traits.scalars,
    )


def _sizes(config: Config) -> Sizes:
    """All sizes, the heads' checked against each other."""
    hidden, heads = read_int(config, "hidden_size"), read_int(config, "num_attention_heads")
    kv_heads = read_int(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise refused_value("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})")
    if config.get("head_dim") is None and hidden % heads:
        raise refused_value("hidden_size", hidden, f"a multiple of num_attention_heads ({heads}), or head_dim given")
    return Sizes(
        hidden=hidden,
        intermediate=read_int(config, "intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=read_int(config, "head_dim", max(1, hidden // heads)),
        layers=read_int(config, "num_hidden_layers", most=MOST_LAYERS),
        max_position=read_int(config, "max_position_embeddings"),
    )


def _eos_ids(config: Config, generation: Mapping[str, Any] | None, vocab: int) -> tuple[int, ...]:
    """Stop tokens, each once: from generation_config.json where it names any, else from config.json.

    Ids outside the vocabulary (some configs say -1 for "none") can never be produced and are left out.
    """
    source, value = "generation_config.json", (generation or {}).get("eos_token_id")
    if value is None:
        source, value = "config.json", config.get("eos_token_id")
    ids = [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, bool) or not isinstance(item, int) for item in ids):
        raise UnsupportedModelError(f"{source}: eos_token_id = {value!r} is neither an integer nor a list of them")
    return tuple(dict.fromkeys(item for item in ids if 0 <= item < vocab))
