"""A .gguf file's weights under their Hugging Face names, dequantised one tensor at a time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError
from amk.model.bf16 import to_bf16
from amk.model.digest import Progress, files_digest
from amk.model.gguf_arch import COMMON_TENSORS, FUSED_QKV, GgufArch
from amk.model.gguf_architectures import arch_of
from amk.model.gguf_config import config_from_gguf, generation_from_gguf
from amk.model.gguf_file import GgufFile, GgufTensor, read_gguf
from amk.model.gguf_rope_config import ROPE_TENSORS
from amk.model.gguf_settings import settings_of

_GLOBAL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_BLOCK = 1 << 22  # elements dequantised at a time


class GgufCheckpoint:
    """A `Checkpoint` over one memory-mapped .gguf file."""

    kind = "gguf"

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.file: GgufFile = read_gguf(path)
        self._progress = progress
        self._digest: str | None = None
        settings = settings_of(self.file)
        self._arch = arch_of(settings)
        tensors = self.file.tensors
        divisors = {name: self._dequantise(tensors[name]).reshape(-1) for name in ROPE_TENSORS if name in tensors}
        self._config = config_from_gguf(self.file, settings, self._arch, divisors)
        self._tensors: dict[str, GgufTensor] = {}
        for name, tensor in tensors.items():
            self._tensors |= {} if name in ROPE_TENSORS else self._named(name, tensor)

    def config(self) -> dict[str, Any]:
        """The model's config.json, made from the metadata."""
        return dict(self._config)

    def generation_config(self) -> dict[str, Any]:
        """The stop tokens as a generation_config.json."""
        return generation_from_gguf(self.file)

    @property
    def digest(self) -> str:
        """sha256 (hex) of the file's contents; computed, or recalled from the cache, on first use."""
        if self._digest is None:
            self._digest = files_digest([self.file.path], self._progress)
        return self._digest

    def names(self) -> list[str]:
        """Every tensor of the file, by Hugging Face name where it has one."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor. Raises UnsupportedModelError if it is absent or of a type that cannot be dequantised."""
        tensor = self._tensor(name)
        if not _can_dequantise(tensor.qtype):
            raise UnsupportedModelError(
                f"{self.file.path}: tensor {name} has type {_type_name(tensor.qtype)}, which cannot be dequantised; "
                "use a file of a common type such as F16, Q8_0 or Q4_K_M"
            )
        return tensor.shape

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        """bf16 bit patterns, row-major, q and k rows in Hugging Face's order."""
        self.shape(name)
        tensor = self._tensor(name)
        rows = _rows(tensor)
        out = np.empty((rows, tensor.shape[-1]), np.uint16)
        step = max(1, _BLOCK // tensor.shape[-1])
        for start in range(0, rows, step):
            out[start : start + step] = to_bf16(self._dequantise(tensor, start, min(start + step, rows)))
        return self._unpermute(name, out.reshape(tensor.shape))

    def fp32(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor in fp32, as dequantised, q and k rows in Hugging Face's order, norms without the added offset."""
        self.shape(name)
        tensor = self._tensor(name)
        values = self._dequantise(tensor).reshape(tensor.shape)
        if self._arch.norm_offset and name.endswith("norm.weight"):
            values = values - np.float32(self._arch.norm_offset)
        return self._unpermute(name, values)

    def _named(self, name: str, tensor: GgufTensor) -> dict[str, GgufTensor]:
        """A tensor of the file by its Hugging Face name; q, k and v by theirs where the file alone has them in one."""
        match = _LAYER_NAME.fullmatch(name)
        if match is None or match[2] != FUSED_QKV or FUSED_QKV in self._arch.tensors:
            return {hf_name(name, self._arch): tensor}
        sizes, begin, parts = self._qkv_rows(tensor), 0, {}
        for letter, size in zip("qkv", sizes, strict=True):
            parts[hf_name(f"blk.{match[1]}.attn_{letter}.{match[3]}", self._arch)] = tensor.rows(begin, begin + size)
            begin += size
        return parts

    def _qkv_rows(self, tensor: GgufTensor) -> tuple[int, int, int]:
        """How many rows of a fused tensor are q's, k's and v's."""
        heads, kv_heads = self._heads()
        size = self._config["head_dim"]
        rows = (heads * size, kv_heads * size, kv_heads * size)
        if sum(rows) == 0 or tensor.shape[:1] != (sum(rows),):
            raise UnsupportedModelError(
                f"{self.file.path}: tensor {tensor.name} has shape {list(tensor.shape)}, the metadata asks for "
                f"{sum(rows)} rows; the file is damaged, download it again"
            )
        return rows

    def _heads(self) -> tuple[int, int]:
        """(query heads, K/V heads)."""
        heads: int = self._config.get("num_attention_heads", 1)
        return heads, self._config["num_key_value_heads"] or heads

    def _dequantise(self, tensor: GgufTensor, start: int = 0, stop: int | None = None) -> npt.NDArray[np.float32]:
        """fp32 [rows, cols] of rows start..stop-1; the rest of the file is not touched."""
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        qtype = GGMLQuantizationType(tensor.qtype)
        raw = self.file.data(tensor).reshape(_rows(tensor), -1)[start:stop]
        if qtype in _PLAIN:
            return np.ascontiguousarray(raw).view(_PLAIN[qtype]).astype(np.float32)
        return np.asarray(dequantize(raw, qtype), np.float32)

    def _unpermute(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if not self._arch.permuted:
            return values
        heads, kv_heads = self._heads()
        if name.endswith(("q_proj.weight", "q_proj.bias")):
            return unpermute(values, heads)
        if name.endswith(("k_proj.weight", "k_proj.bias")):
            return unpermute(values, kv_heads)
        return values

    def _tensor(self, name: str) -> GgufTensor:
        if name not in self._tensors:
            raise UnsupportedModelError(f"{self.file.path}: tensor {name} is missing; the file is incomplete")
        return self._tensors[name]


# ggml type numbers F32, F16 and F64, which need no dequantisation.
_PLAIN: dict[int, str] = {0: "<f4", 1: "<f2", 28: "<f8"}


def hf_name(name: str, arch: GgufArch) -> str:
    """The Hugging Face name of a tensor in GGUF; another name stays as it is, and is refused as unexpected."""
    match, layer = _LAYER_NAME.fullmatch(name), {**COMMON_TENSORS, **arch.tensors}
    if match and match[2] in layer:
        return f"model.layers.{match[1]}.{layer[match[2]]}.{match[3]}"
    return _GLOBAL.get(name, name)


def unpermute(values: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows of q or k ([rows, ...]) back in Hugging Face's order.

    llama.cpp rotates neighbouring rows (2i, 2i+1) of a head, Hugging Face rows (i, i + head_dim/2); the converter
    interleaves the two halves of each head, and this takes them apart again.
    """
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def _rows(tensor: GgufTensor) -> int:
    return tensor.shape[0] if len(tensor.shape) == 2 else 1


def _can_dequantise(qtype: int) -> bool:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    if qtype in _PLAIN:
        return True
    block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(qtype)][1]
    try:
        dequantize(np.zeros((1, block_bytes), np.uint8), GGMLQuantizationType(qtype))
    except (NotImplementedError, ValueError, KeyError):
        return False
    return True


def _type_name(qtype: int) -> str:
    from gguf.constants import GGMLQuantizationType

    return str(GGMLQuantizationType(qtype).name)
