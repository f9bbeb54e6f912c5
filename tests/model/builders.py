"""Small checkpoints for the tests: Hugging Face folders made by transformers, GGUF files as llama.cpp converts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
}


def config_with(**changes: Any) -> dict[str, Any]:
    """The small config with some fields set; a field set to ... is removed."""
    return {key: value for key, value in (CONFIG | changes).items() if value is not ...}


def hf_model(**changes: Any) -> Any:
    """A random fp32 transformers model whose norms and biases are not the trivial ones."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**config_with(**changes))).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "norm" in name or name.endswith("bias"):
                value.add_(0.1 * torch.randn_like(value))
    return model


def save_hf(folder: Path, dtype: str = "float32", shard: str = "5GB", **changes: Any) -> Any:
    """Save such a model and return it."""
    import torch

    model = hf_model(**changes).to(getattr(torch, dtype))
    model.save_pretrained(folder, max_shard_size=shard)
    return model


def edit_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def permute(values: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """What llama.cpp's converter does to q and k: row i of a head's first half goes next to row i of its second."""
    order = []
    half = values.shape[0] // heads // 2
    for head in range(heads):
        for i in range(half):
            order += [head * 2 * half + i, head * 2 * half + half + i]
    return np.ascontiguousarray(values[order])


def llama3_divisors(
    head_dim: int, theta: float, factor: float, low: float, high: float, length: int
) -> npt.NDArray[np.float32]:
    """What llama.cpp's converter writes as rope_freqs.weight, frequency by frequency."""
    out = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * np.pi * theta ** (i / head_dim)
        if wavelength < length / high:
            out.append(1.0)
        elif wavelength > length / low:
            out.append(factor)
        else:
            smooth = (length / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, np.float32)


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name: str) -> str:
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem, kind = name.rsplit(".", 1)
    if stem in top:
        return f"{top[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.{kind}"


def save_gguf(path: Path, model: Any, qtype: str = "F32", extra: dict[str, Any] | None = None, **keys: Any) -> None:
    """Write a transformers llama model as GGUF; matrices are quantised to `qtype`, `extra` adds fp32 tensors.

    `keys` are further llama.* metadata, with __ for the dot.
    """
    import gguf

    writer = gguf.GGUFWriter(path, keys.pop("arch", "llama"))
    add_metadata(writer, model.config)
    for key, value in keys.items():
        add: Any = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)]
        add(f"llama.{key.replace('__', '.')}", value)
    extra = extra or {}
    for name, array in gguf_tensors(model).items():
        kind = gguf.GGMLQuantizationType[qtype if array.ndim == 2 else "F32"]
        if name not in extra:
            writer.add_tensor(name, gguf.quants.quantize(array, kind), raw_dtype=kind)
    for name, array in extra.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_metadata(writer: Any, config: Any) -> None:
    """The keys that the converter writes for every llama model, and two stop tokens."""
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(7)


def gguf_tensors(model: Any) -> dict[str, npt.NDArray[np.float32]]:
    """The model's tensors by GGUF name, q and k permuted, a tied head left out."""
    config, tensors = model.config, {}
    for name, value in model.state_dict().items():
        array = value.float().numpy()
        if "q_proj" in name:
            array = permute(array, config.num_attention_heads)
        if "k_proj" in name:
            array = permute(array, config.num_key_value_heads)
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            tensors[gguf_name(name)] = array
    return tensors
