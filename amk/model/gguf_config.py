"""GGUF metadata of a llama model as the config.json that the walker reads.

The converter stores settings as fp32; `_decimal` gives back the shortest decimal, which is what the config said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError
from amk.model.gguf_file import GgufFile
from amk.model.gguf_rope import rope_scaling_from_divisors

_RENAMED = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
_READ = frozenset(
    " ".join(
        (
            *_RENAMED,
            "attention.layer_norm_rms_epsilon attention.key_length attention.value_length vocab_size",
            "rope.dimension_count rope.freq_base rope.scaling.type rope.scaling.factor rope.scale_linear",
            "rope.scaling.original_context_length",
        )
    ).split()
)
# Keys that ask for a computation which amk lacks, unless they have one of these values.
_PINNED: dict[str, tuple[Any, ...]] = {
    "expert_count": (0,),
    "expert_used_count": (0,),
    "use_parallel_residual": (False,),
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "rope.scaling.attn_factor": (1.0,),
    "logit_scale": (1.0,),
    "tensor_data_layout": ("Meta AI original pth", "reference"),
}
_HARMLESS = frozenset(("rope.scaling.finetuned",))


def config_from_gguf(file: GgufFile, divisors: npt.NDArray[np.float32] | None) -> dict[str, Any]:
    """A config.json dictionary. `divisors` is the rope_freqs.weight tensor where there is one.

    Raises UnsupportedModelError for another architecture, or a key whose effect amk does not implement.
    """
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedModelError(
            f"{file.path}: GGUF architecture {architecture!r} is not supported; supported: llama"
        )
    settings = {key[6:]: value for key, value in file.metadata.items() if key.startswith("llama.")}
    _check_keys(file, settings)
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"}
    config |= {name: _uniform(file, key, settings[key]) for key, name in _RENAMED.items() if key in settings}
    config["rms_norm_eps"] = _decimal(settings.get("attention.layer_norm_rms_epsilon", 1e-6))
    config["vocab_size"] = _vocab(file, settings)
    config["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    config["mlp_bias"] = "blk.0.ffn_gate.bias" in file.tensors
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    config["eos_token_id"] = None
    return config | _head_dim(file, settings) | _rope(file, settings, divisors)


def generation_from_gguf(file: GgufFile) -> dict[str, Any]:
    """The stop tokens that the tokenizer metadata names, as a generation_config.json."""
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return {"eos_token_id": [int(file.metadata[key]) for key in keys if key in file.metadata]}


def _check_keys(file: GgufFile, settings: dict[str, Any]) -> None:
    for key, value in settings.items():
        if key in _READ or key in _HARMLESS or value in _PINNED.get(key, ()):
            continue
        supported = " or ".join(repr(choice) for choice in _PINNED[key]) if key in _PINNED else "leaving it out"
        raise UnsupportedModelError(
            f"{file.path}: llama.{key} = {value!r:.80} is not supported; supported: {supported}"
        )


def _uniform(file: GgufFile, key: str, value: Any) -> Any:
    """A setting that GGUF may give per layer; all layers must agree."""
    if not isinstance(value, list):
        return value
    if len(set(value)) != 1:
        raise UnsupportedModelError(f"{file.path}: llama.{key} = {value!r:.80} differs between layers, which amk lacks")
    return value[0]


def _vocab(file: GgufFile, settings: dict[str, Any]) -> int:
    """Rows of the embedding: what the model can index, whatever the metadata says."""
    embed = file.tensors.get("token_embd.weight")
    if embed is not None and len(embed.shape) == 2:
        return embed.shape[0]
    return int(settings.get("vocab_size", 0))


def _head_dim(file: GgufFile, settings: dict[str, Any]) -> dict[str, Any]:
    """head_dim where the file gives one; the rotated part must be the whole head."""
    key, value = settings.get("attention.key_length"), settings.get("attention.value_length")
    if key != value:
        raise UnsupportedModelError(
            f"{file.path}: llama.attention.key_length = {key} and value_length = {value} differ, which amk lacks"
        )
    heads = _uniform(file, "attention.head_count", settings.get("attention.head_count", 1))
    head_dim = key if key is not None else settings.get("embedding_length", 0) // max(heads, 1)
    rotated = settings.get("rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise UnsupportedModelError(
            f"{file.path}: llama.rope.dimension_count = {rotated} is not supported; "
            f"supported: {head_dim}, the whole head"
        )
    return {} if key is None else {"head_dim": key}


def _rope(file: GgufFile, settings: dict[str, Any], divisors: npt.NDArray[np.float32] | None) -> dict[str, Any]:
    """rope_theta and rope_scaling; `divisors` carry llama3 scaling, which has no key of its own."""
    theta = _decimal(settings.get("rope.freq_base", 10000.0))
    kind = settings.get("rope.scaling.type", "none")
    factor = _decimal(settings.get("rope.scaling.factor", settings.get("rope.scale_linear", 1.0)))
    if "rope.scale_linear" in settings and kind == "none":
        kind = "linear"
    if kind not in ("none", "linear") or (kind == "none" and factor not in (0.0, 1.0)):
        raise UnsupportedModelError(
            f"{file.path}: llama.rope.scaling.type = {kind!r} with factor {factor} is not supported; "
            "supported: none, linear, and llama3 as rope_freqs.weight"
        )
    linear = {"rope_type": "linear", "factor": factor} if kind == "linear" and factor not in (0.0, 1.0) else None
    llama3 = None if divisors is None else rope_scaling_from_divisors(divisors, theta)
    if linear and llama3:
        raise UnsupportedModelError(f"{file.path}: has both linear rope scaling and rope_freqs.weight, which amk lacks")
    return {"rope_theta": theta, "rope_scaling": linear or llama3}


def _decimal(value: float) -> float:
    """The shortest decimal number that rounds to this fp32 value."""
    return float(str(np.float32(value)))
