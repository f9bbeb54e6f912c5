"""The settings of a GGUF file's architecture, read as what they should be; files are not to be trusted in that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from amk.errors import UnsupportedModelError
from amk.model.gguf_file import GgufFile


@dataclass(frozen=True)
class GgufSettings:
    """What the metadata says of the architecture `name`; keys are without that name."""

    path: Path
    name: str
    values: Mapping[str, Any]

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def integer(self, key: str, default: int) -> int:
        """An integer that is not negative. Raises UnsupportedModelError for anything else."""
        value = self.uniform(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refused(key, "an integer that is not negative")
        return value

    def number(self, key: str, default: float) -> float:
        """A number. Raises UnsupportedModelError for anything else.

        The converter stores fp32; this is the shortest decimal that rounds to it, which is what the config said.
        """
        value = self.uniform(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refused(key, "a number")
        return float(str(np.float32(value))) if isinstance(value, float) else value

    def text(self, key: str, default: str) -> str:
        """A string. Raises UnsupportedModelError for anything else."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.refused(key, "a string")
        return value

    def uniform(self, key: str, default: Any = None) -> Any:
        """A setting that GGUF may give per layer. Raises UnsupportedModelError unless all layers agree."""
        value = self.values.get(key, default)
        if not isinstance(value, list):
            return value
        if not value or any(item != value[0] for item in value):
            raise self.refused(key, "the same in all layers")
        return value[0]

    def refused(self, key: str, supported: str) -> UnsupportedModelError:
        """The error for a setting whose value amk does not implement."""
        value = f"{self.values.get(key)!r:.80}"
        return UnsupportedModelError(
            f"{self.path}: {self.name}.{key} = {value} is not supported; supported: {supported}"
        )


def settings_of(file: GgufFile) -> GgufSettings:
    """The settings of the architecture that a file names, none where it names none."""
    name = file.metadata.get("general.architecture")
    prefix = f"{name}."
    own = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    return GgufSettings(file.path, str(name), own)
