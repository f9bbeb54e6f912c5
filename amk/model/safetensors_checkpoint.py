"""A Hugging Face folder's weights: one model.safetensors, or shards with an index."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import UnsupportedModelError
from amk.model.bf16 import from_bf16, to_bf16
from amk.model.digest import Progress, files_digest
from amk.model.safetensors_file import DTYPES, TensorEntry, map_tensor, read_header

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class SafetensorsCheckpoint:
    """A `Checkpoint` over memory-mapped safetensors files; all headers are checked when it is made."""

    kind = "safetensors"

    def __init__(self, files: Iterable[Path], progress: Progress | None = None) -> None:
        self.files = tuple(files)
        self._progress = progress
        self._digest: str | None = None
        self._entries: dict[str, tuple[Path, TensorEntry]] = {}
        for path in self.files:
            for name, entry in read_header(path).items():
                if name in self._entries:
                    raise UnsupportedModelError(
                        f"{path}: tensor {name} is also in {self._entries[name][0].name}; remove the stale file"
                    )
                self._entries[name] = (path, entry)

    @classmethod
    def open(cls, folder: Path, progress: Progress | None = None) -> SafetensorsCheckpoint:
        """The weights of a folder. Raises UnsupportedModelError if there are none or one is damaged."""
        return cls(_weight_files(folder), progress)

    @property
    def digest(self) -> str:
        """sha256 (hex) of the files' contents; computed, or recalled from the cache, on first use."""
        if self._digest is None:
            self._digest = files_digest(self.files, self._progress)
        return self._digest

    def names(self) -> list[str]:
        """Every tensor of the files."""
        return list(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor of a dtype that amk reads. Raises UnsupportedModelError if it is absent or of another."""
        path, entry = self._entry(name)
        if entry.dtype not in DTYPES:
            raise UnsupportedModelError(
                f"{path}: tensor {name} has dtype {entry.dtype}; supported: {', '.join(DTYPES)}; "
                "use an unquantised checkpoint or a GGUF file"
            )
        return entry.shape

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        """bf16 bit patterns, row-major; a stored bf16 tensor is a read-only memory map, others are rounded."""
        values, is_bf16 = self._values(name)
        return values if is_bf16 else to_bf16(values)

    def fp32(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor as fp32, exactly as stored (fp64 is rounded)."""
        values, is_bf16 = self._values(name)
        return from_bf16(values) if is_bf16 else np.asarray(values).astype(np.float32)

    def _values(self, name: str) -> tuple[npt.NDArray[Any], bool]:
        self.shape(name)
        path, entry = self._entry(name)
        return map_tensor(path, entry), entry.dtype == "BF16"

    def _entry(self, name: str) -> tuple[Path, TensorEntry]:
        if name not in self._entries:
            raise UnsupportedModelError(
                f"tensor {name} is missing from {', '.join(path.name for path in self.files[:3])}; "
                "the checkpoint is incomplete, or config.json describes another model"
            )
        return self._entries[name]


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder, the single one first as transformers does."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _shards(folder / INDEX)
    other = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".ckpt"))
    if other:
        raise UnsupportedModelError(
            f"{folder}: only {other[0]} here: pickled weights can run code, so amk never reads them; "
            "convert them to safetensors"
        )
    raise UnsupportedModelError(
        f"{folder}: no {SINGLE} and no {INDEX}; add the weights, or use --random-weights SEED to do without"
    )


def _shards(index: Path) -> list[Path]:
    """The files that an index names; each must lie beside the index."""
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise UnsupportedModelError(f"{index}: has no usable weight_map ({error!r}); download it again") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise UnsupportedModelError(f"{index}: shard {name!r} is not a file name in the same folder")
        if not (index.parent / name).is_file():
            raise UnsupportedModelError(f"{index.parent / name}: the index names this shard, but it is missing")
    return [index.parent / name for name in names]
