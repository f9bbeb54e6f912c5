"""One .gguf file: metadata and tensor index, checked against the file's size; the data stays a memory map.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Parsed here because `gguf.GGUFReader` makes a NumPy
view per metadata string (2.5 s for SmolLM2's vocabulary, 0.1 s here) and does not check bounds. Types and block sizes
come from the gguf package.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of the file. `shape` is in NumPy order (rows first); `qtype` a ggml type number."""

    name: str
    shape: tuple[int, ...]
    qtype: int
    start: int
    size: int

    def rows(self, begin: int, end: int) -> GgufTensor:
        """Rows begin..end-1 as a tensor of its own (elements, where there are no rows); blocks do not span rows."""
        row = self.size // self.shape[0]
        return GgufTensor(
            self.name, (end - begin, *self.shape[1:]), self.qtype, self.start + begin * row, (end - begin) * row
        )


@dataclass(frozen=True)
class GgufFile:
    """A parsed file: `metadata` by key, `tensors` by name."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]

    def data(self, tensor: GgufTensor) -> npt.NDArray[np.uint8]:
        """The tensor's raw bytes, a read-only memory map."""
        if tensor.size == 0:
            return np.empty(0, np.uint8)
        return np.memmap(self.path, np.uint8, "r", tensor.start, (tensor.size,))


def read_gguf(path: Path) -> GgufFile:
    """Parse a file. Raises UnsupportedModelError if it is damaged, truncated, or of another version."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise UnsupportedModelError(f"{path}: cannot be read ({error}); check the file") from error
    cursor = _Cursor(data.data)
    try:
        return _parse(path, cursor)
    except (struct.error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise _damaged(path, f"its header breaks off at byte {cursor.at} ({error})") from error


class _Cursor:
    """Reads little-endian values one after another; struct.error where the file ends."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        (length,) = struct.unpack_from("<Q", self.data, self.at)
        start = self.at + 8
        if length > len(self.data) - start:
            raise struct.error("a string runs past the end of the file")
        self.at = start + length
        return str(self.data[start : self.at], "utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise struct.error(f"value type {kind} is unknown")
        return self.scalar(_SCALARS[kind])

    def array(self) -> list[Any]:
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind in _SCALARS:
            dtype = np.dtype(_SCALARS[kind]).newbyteorder("<")
            if count * dtype.itemsize > len(self.data) - self.at:
                raise struct.error("an array runs past the end of the file")
            values = np.frombuffer(self.data, dtype, count, self.at).tolist()
            self.at += count * dtype.itemsize
            return list(values)
        read: Callable[[], Any] = self.string if kind == _STRING else lambda: self.value(kind)
        return [read() for _ in range(count)]


def _parse(path: Path, cursor: _Cursor) -> GgufFile:
    if bytes(cursor.data[:4]) != b"GGUF":
        raise _damaged(path, "it does not start with GGUF")
    cursor.at = 4
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise UnsupportedModelError(f"{path}: GGUF version {version} is not supported; supported: little-endian 2, 3")
    tensor_count, key_count = cursor.scalar("Q"), cursor.scalar("Q")
    metadata: dict[str, Any] = {}
    for _ in range(key_count):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.scalar("I"))
    raw = [_tensor_info(cursor) for _ in range(tensor_count)]
    alignment = int(metadata.get("general.alignment", _DEFAULT_ALIGNMENT)) or _DEFAULT_ALIGNMENT
    base = -(-cursor.at // alignment) * alignment
    tensors = [_tensor(path, base, len(cursor.data), *info) for info in raw]
    return GgufFile(path, metadata, {tensor.name: tensor for tensor in tensors})


def _tensor_info(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """(name, shape in NumPy order, type, offset from the start of the data)."""
    name = cursor.string()
    dims = tuple(cursor.scalar("Q") for _ in range(cursor.scalar("I")))
    return name, dims[::-1], cursor.scalar("I"), cursor.scalar("Q")


def _tensor(path: Path, base: int, end: int, name: str, shape: tuple[int, ...], qtype: int, offset: int) -> GgufTensor:
    size = _byte_size(path, name, shape, qtype)
    if base + offset + size > end:
        raise _damaged(path, f"tensor {name} ends at byte {base + offset + size}, the file has {end} (truncated?)")
    return GgufTensor(name, shape, qtype, base + offset, size)


def _byte_size(path: Path, name: str, shape: tuple[int, ...], qtype: int) -> int:
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(qtype)]
    except (ValueError, KeyError) as error:
        raise UnsupportedModelError(
            f"{path}: tensor {name} has the unknown type {qtype}; use a file of a common type such as Q8_0 or Q4_K_M"
        ) from error
    if shape and shape[-1] % block:
        raise _damaged(path, f"tensor {name} has rows of {shape[-1]}, not a multiple of its block of {block}")
    return math.prod(shape) // block * block_bytes


def _damaged(path: Path, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path}: damaged GGUF file: {what}; download it again")
