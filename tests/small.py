"""A small model with real files on disk, and artifacts of it: what the tests of the whole pipe build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import amk
from amk.artifact import Artifact
from tests.model.builders import save_hf

VOCAB = 96
MAX_SEQ = 48


def small_model(folder: Path, **changes: Any) -> Path:
    """A Hugging Face folder of 2 layers, hidden size 64, in bf16; the same weights on every call."""
    save_hf(folder, "bfloat16", **changes)
    return folder


def small_artifact(model: Path, out: Path, gpu: str = "h200", **options: Any) -> Artifact:
    """Build it for a GPU."""
    settings: dict[str, Any] = {"max_seq": MAX_SEQ} | options
    return amk.build(model, gpu=gpu, out=out, **settings)
