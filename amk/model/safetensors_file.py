"""One .safetensors file: its header, checked against the file's size, and its tensors as memory maps.

Format: 8-byte little-endian header length, JSON header {name: {dtype, shape, data_offsets}}, then the data
(https://github.com/huggingface/safetensors#format). Parsed here rather than by the safetensors package because that
one hands out neither bf16 nor memory maps to NumPy.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError

# The dtypes that weights may have; bf16 is read as its bit patterns.
DTYPES: dict[str, str] = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8"}

_MAX_HEADER = 100 << 20  # the format's own limit


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor lies: `start` and `stop` are byte offsets in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Every tensor of the file. Raises UnsupportedModelError for a damaged or truncated file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                raise _damaged(path, f"its header needs {length} bytes, the file has {size}")
            raw = json.loads(file.read(length))
    except OSError as error:
        raise UnsupportedModelError(f"{path}: cannot be read: {error.strerror}; check the file") from error
    except ValueError as error:
        raise _damaged(path, f"its header is not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise _damaged(path, "its header is not a JSON object")
    raw.pop("__metadata__", None)
    return {name: _entry(path, name, item, 8 + length, size) for name, item in raw.items()}


def _entry(path: Path, name: str, item: Any, base: int, size: int) -> TensorEntry:
    """A header item, checked: its bytes lie inside the file and fit its shape."""
    try:
        dtype, shape = str(item["dtype"]), tuple(item["shape"])
        start, stop = item["data_offsets"]
        whole = all(isinstance(number, int) and number >= 0 for number in (*shape, start, stop))
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole or start > stop:
        raise _damaged(path, f"the header entry of tensor {name} is malformed: {item!r:.100}")
    if base + stop > size:
        raise _damaged(path, f"tensor {name} ends at byte {base + stop}, the file has {size} (truncated?)")
    if dtype in DTYPES and math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize != stop - start:
        raise _damaged(path, f"tensor {name} of {dtype} {list(shape)} cannot take {stop - start} bytes")
    return TensorEntry(dtype, shape, base + start, base + stop)


def map_tensor(path: Path, entry: TensorEntry) -> npt.NDArray[Any]:
    """A read-only array over the file, in the tensor's shape (bf16 as uint16)."""
    dtype = np.dtype(DTYPES[entry.dtype])
    if entry.start == entry.stop:
        return np.empty(entry.shape, dtype)
    if entry.start % dtype.itemsize == 0:
        return np.asarray(np.memmap(path, dtype, "r", entry.start, entry.shape))  # a plain array, still a map
    # The format does not promise alignment: such a tensor is copied.
    raw = np.memmap(path, np.uint8, "r", entry.start, (entry.stop - entry.start,))
    return raw.copy().view(dtype).reshape(entry.shape)


def _damaged(path: Path, what: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"{path}: damaged safetensors file: {what}; download it again")
