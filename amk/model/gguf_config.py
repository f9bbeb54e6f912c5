"""GGUF metadata of a model as the config.json that the walker reads."""

from __future__ import annotations

from typing import Any

from amk.errors import UnsupportedModelError
from amk.model.gguf_arch import FUSED_QKV, GgufArch
from amk.model.gguf_file import GgufFile
from amk.model.gguf_rope_config import LOCAL_THETA, ROPE_SETTINGS, Divisors, rope_config
from amk.model.gguf_settings import GgufSettings
from amk.model.gguf_windows import PATTERN, WINDOW, windows_config

_RENAMED = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
_READ = ROPE_SETTINGS | {
    *_RENAMED, "attention.layer_norm_rms_epsilon", "attention.key_length", "attention.value_length", "vocab_size",
    "rope.dimension_count",
}  # fmt: skip
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
    "rope.scaling.yarn_ext_factor": (1.0,),
    "tensor_data_layout": ("Meta AI original pth", "reference"),
}
_HARMLESS = frozenset(("rope.scaling.finetuned",))
_STOP_TOKENS = ("eos", "eot", "eom")


def config_from_gguf(file: GgufFile, settings: GgufSettings, arch: GgufArch, divisors: Divisors) -> dict[str, Any]:
    """A config.json dictionary. `divisors` are the tensors of ROPE_TENSORS that there are, by name.

    Raises UnsupportedModelError for a key whose effect amk does not implement.
    """
    _check_keys(settings, arch)
    config: dict[str, Any] = {"architectures": [arch.architecture], "model_type": arch.model_type, **arch.fixed}
    config |= {name: settings.integer(key, 0) for key, name in _RENAMED.items() if key in settings}
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    config |= {name: settings.number(key, 0.0) for key, name in arch.renamed.items() if key in settings}
    config |= arch.derive(settings)
    config |= windows_config(settings, arch.windows) if arch.windows else {}
    config["rms_norm_eps"] = settings.number("attention.layer_norm_rms_epsilon", 1e-6)
    config["vocab_size"] = _vocab(file, settings)
    config |= {name: _has_bias(file, tensor) for name, tensor in arch.biases.items()}
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    config["eos_token_id"] = None
    return config | _head_dim(settings, arch) | rope_config(settings, arch, divisors)


def generation_from_gguf(file: GgufFile) -> dict[str, Any]:
    """The stop tokens that the tokenizer metadata names, as a generation_config.json."""
    keys = (f"tokenizer.ggml.{name}_token_id" for name in _STOP_TOKENS)
    return {"eos_token_id": [file.metadata[key] for key in keys if key in file.metadata]}


def _check_keys(settings: GgufSettings, arch: GgufArch) -> None:
    known = _READ | arch.renamed.keys() | arch.unused
    known |= {WINDOW, PATTERN} if arch.windows else set()
    known |= {LOCAL_THETA} if arch.local_theta else set()
    pinned = {**_PINNED, **arch.pinned}
    for key, value in settings.values.items():
        if key in known or value in pinned.get(key, ()) or (key in _HARMLESS and key not in arch.pinned):
            continue
        raise settings.refused(key, " or ".join(map(repr, pinned[key])) if key in pinned else "leaving it out")


def _vocab(file: GgufFile, settings: GgufSettings) -> int:
    """Rows of the embedding: what the model can index, whatever the metadata says."""
    embed = file.tensors.get("token_embd.weight")
    if embed is not None and len(embed.shape) == 2:
        return embed.shape[0]
    return settings.integer("vocab_size", 0)


def _has_bias(file: GgufFile, tensor: str) -> bool:
    """Whether a tensor of the first layer has a bias; those of q, k and v may be in one."""
    names = (tensor, FUSED_QKV) if tensor == "attn_q" else (tensor,)
    return any(f"blk.0.{name}.bias" in file.tensors for name in names)


def _head_dim(settings: GgufSettings, arch: GgufArch) -> dict[str, Any]:
    """head_dim, for llama.cpp hidden / heads where the file does not say; the rotated part, mostly the whole head."""
    key, value = (settings.values.get(f"attention.{name}_length") for name in ("key", "value"))
    if key != value:
        raise UnsupportedModelError(
            f"{settings.path}: {settings.name}.attention.key_length = {key} and value_length = {value} differ, "
            "which amk lacks"
        )
    heads = settings.integer("attention.head_count", 1)
    head_dim = settings.integer("attention.key_length", settings.integer("embedding_length", 0) // max(heads, 1))
    rotated = settings.integer("rope.dimension_count", head_dim)
    if arch.partial and head_dim and int(head_dim * (rotated / head_dim)) == rotated <= head_dim:
        return {"head_dim": head_dim, "partial_rotary_factor": rotated / head_dim}
    if rotated != head_dim:
        raise settings.refused("rope.dimension_count", f"{head_dim}, the whole head")
    return {"head_dim": head_dim}
