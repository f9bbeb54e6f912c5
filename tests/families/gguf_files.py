"""GGUF files of the families as llama.cpp's converter writes them: names by the gguf package's own table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.model.builders import permute

PERMUTED = ("granite", "smollm3")
OFFSET = ("gemma", "gemma2", "gemma3")


def save_gguf(path: Path, arch: str, model: Any, head_dim: bool = True, **settings: Any) -> None:
    """Write a transformers model in fp32. `settings` are further keys of the architecture, with __ for the dot."""
    writer = gguf.GGUFWriter(path, arch)
    add_metadata(writer, model.config, head_dim)
    for key, value in settings.items():
        add: Any = writer.add_uint32 if isinstance(value, int) else writer.add_float32
        add(f"{arch}.{key.replace('__', '.')}", value)
    for name, value in tensors(arch, model).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_metadata(writer: Any, config: Any, head_dim: bool) -> None:
    """The keys that every architecture has."""
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if head_dim:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)


def tensors(arch: str, model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The model's tensors by GGUF name, as the converter changes them."""
    config = model.config
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    result = {}
    for name, value in model.state_dict().items():
        array = value.float().numpy()
        if arch in PERMUTED and "q_proj" in name:
            array = permute(array, config.num_attention_heads)
        if arch in PERMUTED and "k_proj" in name:
            array = permute(array, config.num_key_value_heads)
        if arch in OFFSET and name.endswith("norm.weight"):
            array = array + np.float32(1)
        if name != "lm_head.weight" or not config.tie_word_embeddings:
            result[str(names.get_name(name, (".weight", ".bias")))] = array
    return result
