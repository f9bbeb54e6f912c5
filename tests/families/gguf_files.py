"""GGUF files of the families as llama.cpp's converter writes them: names by the gguf package's own table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from tests.model.builders import llama3_divisors, permute

Tensors = dict[str, npt.NDArray[np.float32]]

PERMUTED = ("llama", "mistral3", "granite", "smollm3")
OFFSET = ("gemma", "gemma2", "gemma3")


def save_gguf(path: Path, arch: str, model: Any, head_dim: bool = True, **settings: Any) -> None:
    """Write a transformers model in fp32. `settings` are further keys of the architecture, with __ for the dot."""
    write_gguf(path, arch, model.config, tensors(arch, model.config, state_of(model)), head_dim, **settings)


def state_of(model: Any) -> Tensors:
    """The tensors of a transformers model by their names there; without a tied head, as in a saved checkpoint."""
    state = {name: value.float().numpy() for name, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    return state


def write_gguf(
    path: Path, arch: str, config: Any, arrays: dict[str, Any], head_dim: bool = True, **settings: Any
) -> None:
    """Write tensors by their GGUF names, with the sizes of a transformers config."""
    writer = gguf.GGUFWriter(path, arch)
    add_metadata(writer, config, head_dim)
    for key, value in settings.items():
        add_setting(writer, f"{arch}.{key.replace('__', '.')}", value)
    for name, value in arrays.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_setting(writer: Any, key: str, value: Any) -> None:
    """A setting in the type that the converter gives it."""
    kinds = {
        bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string,
        list: writer.add_array,
    }  # fmt: skip
    kinds[type(value)](key, value)


def add_metadata(writer: Any, config: Any, head_dim: bool) -> None:
    """The keys that every architecture has."""
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(_rope(config)["rope_theta"])
    if head_dim:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)


def _rope(config: Any) -> dict[str, Any]:
    """The rope settings of layers that see everything."""
    found: dict[str, Any] = config.rope_parameters.get("full_attention", config.rope_parameters)
    return found


def tensors(arch: str, config: Any, state: Tensors) -> Tensors:
    """Tensors by GGUF name, as the converter changes them, and the divisors of llama3 scaling."""
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    result = {}
    for name, value in state.items():
        array = value
        if arch in PERMUTED and "q_proj" in name:
            array = permute(array, config.num_attention_heads)
        if arch in PERMUTED and "k_proj" in name:
            array = permute(array, config.num_key_value_heads)
        if arch in OFFSET and name.endswith("norm.weight"):
            array = array + np.float32(1)
        result[str(names.get_name(name, (".weight", ".bias")))] = array
    rope = _rope(config)
    if rope["rope_type"] == "llama3":
        result["rope_freqs.weight"] = llama3_divisors(
            config.head_dim, rope["rope_theta"], rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"],
            rope["original_max_position_embeddings"],
        )  # fmt: skip
    return result
