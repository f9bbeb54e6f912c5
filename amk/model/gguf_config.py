"""GGUF metadata of a model as the config.json that the walker reads.

The converter stores settings as fp32; `_decimal` gives back the shortest decimal, which is what the config said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError
from amk.model.gguf_arch import GgufArch, arch_of
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
            "rope.scaling.original_context_length rope.scaling.attn_factor",
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
    "logit_scale": (1.0,),
    "tensor_data_layout": ("Meta AI original pth", "reference"),
}
LLAMA3_TENSOR = "rope_freqs.weight"
LONGROPE_TENSORS = ("rope_factors_long.weight", "rope_factors_short.weight")
ROPE_TENSORS = (LLAMA3_TENSOR, *LONGROPE_TENSORS)
_BIASES = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_gate.bias"}
_HARMLESS = frozenset(("rope.scaling.finetuned",))


def config_from_gguf(file: GgufFile, divisors: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, Any]:
    """A config.json dictionary. `divisors` are the tensors of ROPE_TENSORS that there are, by name.

    Raises UnsupportedModelError for another architecture, or a key whose effect amk does not implement.
    """
    arch, prefix = arch_of_file(file), f"{file.metadata['general.architecture']}."
    settings = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    _check_keys(file, settings, arch)
    config: dict[str, Any] = {"architectures": [arch.architecture], "model_type": arch.model_type, **arch.fixed}
    config |= {name: _uniform(file, key, settings[key]) for key, name in _RENAMED.items() if key in settings}
    config |= {name: _decimal(settings[key]) for key, name in arch.renamed.items() if key in settings}
    config |= arch.derive(settings)
    config["rms_norm_eps"] = _decimal(settings.get("attention.layer_norm_rms_epsilon", 1e-6))
    config["vocab_size"] = _vocab(file, settings)
    config |= {name: True for name, tensor in _BIASES.items() if tensor in file.tensors and arch.model_type != "qwen2"}
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    config["eos_token_id"] = None
    return config | _head_dim(file, settings, arch) | _rope(file, settings, divisors)


def arch_of_file(file: GgufFile) -> GgufArch:
    """The architecture of a file. Raises UnsupportedModelError for one that amk does not read."""
    try:
        return arch_of(file.metadata.get("general.architecture"))
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{file.path}: {error}") from error


def generation_from_gguf(file: GgufFile) -> dict[str, Any]:
    """The stop tokens that the tokenizer metadata names, as a generation_config.json."""
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return {"eos_token_id": [int(file.metadata[key]) for key in keys if key in file.metadata]}


def _check_keys(file: GgufFile, settings: dict[str, Any], arch: GgufArch) -> None:
    name = file.metadata["general.architecture"]
    for key, value in settings.items():
        if key in _READ or key in _HARMLESS or key in arch.renamed or value in _PINNED.get(key, ()):
            continue
        supported = " or ".join(repr(choice) for choice in _PINNED[key]) if key in _PINNED else "leaving it out"
        raise UnsupportedModelError(
            f"{file.path}: {name}.{key} = {value!r:.80} is not supported; supported: {supported}"
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


def _head_dim(file: GgufFile, settings: dict[str, Any], arch: GgufArch) -> dict[str, Any]:
    """head_dim where the file gives one; the rotated part, which most architectures want to be the whole head."""
    key, value = settings.get("attention.key_length"), settings.get("attention.value_length")
    if key != value:
        raise UnsupportedModelError(
            f"{file.path}: llama.attention.key_length = {key} and value_length = {value} differ, which amk lacks"
        )
    heads = _uniform(file, "attention.head_count", settings.get("attention.head_count", 1))
    head_dim = key if key is not None else settings.get("embedding_length", 0) // max(heads, 1)
    rotated = settings.get("rope.dimension_count", head_dim)
    sizes = {} if key is None else {"head_dim": key}
    if arch.partial and int(head_dim * (rotated / head_dim)) == rotated < head_dim:
        return {**sizes, "partial_rotary_factor": rotated / head_dim}
    if rotated != head_dim:
        raise UnsupportedModelError(
            f"{file.path}: llama.rope.dimension_count = {rotated} is not supported; "
            f"supported: {head_dim}, the whole head"
        )
    return sizes


def _rope(file: GgufFile, settings: dict[str, Any], divisors: Mapping[str, npt.NDArray[np.float32]]) -> dict[str, Any]:
    """rope_theta and rope_scaling; llama3 scaling and LongRoPE are tensors of divisors."""
    theta = _decimal(settings.get("rope.freq_base", 10000.0))
    kind = settings.get("rope.scaling.type", "none")
    factor = _decimal(settings.get("rope.scaling.factor", settings.get("rope.scale_linear", 1.0)))
    if "rope.scale_linear" in settings and kind == "none":
        kind = "linear"
    attention = settings.get("rope.scaling.attn_factor")
    if set(divisors) == set(LONGROPE_TENSORS):
        return {"rope_theta": theta, "rope_scaling": _longrope(divisors, attention)}
    if attention not in (None, 1.0) or (divisors and set(divisors) != {LLAMA3_TENSOR}):
        raise UnsupportedModelError(
            f"{file.path}: rope.scaling.attn_factor = {attention} with {', '.join(divisors) or 'no divisors'} is not "
            f"supported; supported: {' and '.join(LONGROPE_TENSORS)}, or {LLAMA3_TENSOR}"
        )
    if kind == "yarn":
        length = settings.get("rope.scaling.original_context_length")
        yarn = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length}
        return {"rope_theta": theta, "rope_scaling": yarn}
    if kind not in ("none", "linear") or (kind == "none" and factor not in (0.0, 1.0)):
        raise UnsupportedModelError(
            f"{file.path}: llama.rope.scaling.type = {kind!r} with factor {factor} is not supported; "
            "supported: none, linear, yarn, and llama3 as rope_freqs.weight"
        )
    linear = {"rope_type": "linear", "factor": factor} if kind == "linear" and factor not in (0.0, 1.0) else None
    llama3 = rope_scaling_from_divisors(divisors[LLAMA3_TENSOR], theta) if divisors else None
    if linear and llama3:
        raise UnsupportedModelError(f"{file.path}: has both linear rope scaling and rope_freqs.weight, which amk lacks")
    return {"rope_theta": theta, "rope_scaling": linear or llama3}


def _longrope(divisors: Mapping[str, npt.NDArray[np.float32]], attention: float | None) -> dict[str, Any]:
    long, short = ([float(value) for value in divisors[name]] for name in LONGROPE_TENSORS)
    factor = None if attention is None else _decimal(attention)
    return {"rope_type": "longrope", "long_factor": long, "short_factor": short, "attention_factor": factor}


def _decimal(value: Any) -> Any:
    """The shortest decimal number that rounds to this fp32 value; an integer as it is."""
    return value if isinstance(value, int) else float(str(np.float32(value)))
