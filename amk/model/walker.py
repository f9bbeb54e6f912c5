"""The walker: a config.json -> ModelGraph. Reads no weight; refuses what amk does not implement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amk.errors import UnsupportedModelError
from amk.model.architectures import architecture_of
from amk.model.config import Config, check_fields, read_bool, read_float, read_int, refused_value
from amk.model.graph import Layer, Linear, ModelGraph, TensorRef
from amk.model.rope_config import parse_rope

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"

_DEFAULT_EOS = 2  # LlamaConfig's own default, where config.json has no eos_token_id at all


def walk(config: dict[str, Any], generation_config: dict[str, Any] | None = None) -> ModelGraph:
    """The computation that `config` (a parsed config.json) describes; defaults are transformers' own.

    Raises UnsupportedModelError naming the field, its value and what is supported.
    """
    architecture = architecture_of(config)
    check_fields(config)
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise refused_value("hidden_act", activation, "silu")
    hidden, vocab = read_int(config, "hidden_size"), read_int(config, "vocab_size")
    heads, kv_heads, head_dim = _head_sizes(config, hidden)
    max_position = read_int(config, "max_position_embeddings", 2048)
    tied = read_bool(config, "tie_word_embeddings", False)
    embed = TensorRef(EMBED, (vocab, hidden))
    return ModelGraph(
        architecture=architecture,
        hidden=hidden,
        intermediate=read_int(config, "intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        norm_eps=read_float(config, "rms_norm_eps", 1e-6),
        activation="silu",
        attention_scale=head_dim**-0.5,
        max_position=max_position,
        rope=parse_rope(config, head_dim, max_position),
        embed=embed,
        layers=_layers(config, hidden, heads * head_dim, kv_heads * head_dim),
        final_norm=TensorRef("model.norm.weight", (hidden,)),
        head=Linear(embed if tied else TensorRef(HEAD, (vocab, hidden))),
        tied_head=tied,
        eos_token_ids=_eos_ids(config, generation_config, vocab),
    )


def _head_sizes(config: Config, hidden: int) -> tuple[int, int, int]:
    """(query heads, K/V heads, head_dim), checked against each other."""
    heads = read_int(config, "num_attention_heads")
    kv_heads = read_int(config, "num_key_value_heads", heads)
    if heads % kv_heads:
        raise refused_value("num_key_value_heads", kv_heads, f"a divisor of num_attention_heads ({heads})")
    if config.get("head_dim") is None and hidden % heads:
        raise refused_value("hidden_size", hidden, f"a multiple of num_attention_heads ({heads}), or head_dim given")
    return heads, kv_heads, read_int(config, "head_dim", max(1, hidden // heads))


def _layers(config: Config, hidden: int, q_rows: int, kv_rows: int) -> tuple[Layer, ...]:
    """All decoder layers; they differ in their names only."""
    attn_bias, mlp_bias = read_bool(config, "attention_bias", False), read_bool(config, "mlp_bias", False)
    inner = read_int(config, "intermediate_size")

    def layer(index: int) -> Layer:
        base = f"model.layers.{index}"
        attn, mlp = f"{base}.self_attn", f"{base}.mlp"
        return Layer(
            attn_norm=TensorRef(f"{base}.input_layernorm.weight", (hidden,)),
            q=_linear(f"{attn}.q_proj", q_rows, hidden, attn_bias),
            k=_linear(f"{attn}.k_proj", kv_rows, hidden, attn_bias),
            v=_linear(f"{attn}.v_proj", kv_rows, hidden, attn_bias),
            o=_linear(f"{attn}.o_proj", hidden, q_rows, attn_bias),
            mlp_norm=TensorRef(f"{base}.post_attention_layernorm.weight", (hidden,)),
            gate=_linear(f"{mlp}.gate_proj", inner, hidden, mlp_bias),
            up=_linear(f"{mlp}.up_proj", inner, hidden, mlp_bias),
            down=_linear(f"{mlp}.down_proj", hidden, inner, mlp_bias),
        )

    return tuple(layer(index) for index in range(read_int(config, "num_hidden_layers")))


def _linear(name: str, rows: int, cols: int, bias: bool) -> Linear:
    return Linear(TensorRef(f"{name}.weight", (rows, cols)), TensorRef(f"{name}.bias", (rows,)) if bias else None)


def _eos_ids(config: Config, generation: Mapping[str, Any] | None, vocab: int) -> tuple[int, ...]:
    """Stop tokens, each once: from generation_config.json where it names any, else from config.json.

    Ids outside the vocabulary (some configs say -1 for "none") can never be produced and are left out.
    """
    source, value = "generation_config.json", (generation or {}).get("eos_token_id")
    if value is None:
        source, value = "config.json", config.get("eos_token_id", _DEFAULT_EOS)
    ids = [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, bool) or not isinstance(item, int) for item in ids):
        raise UnsupportedModelError(f"{source}: eos_token_id = {value!r} is neither an integer nor a list of them")
    return tuple(dict.fromkeys(item for item in ids if 0 <= item < vocab))
