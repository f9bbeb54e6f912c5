"""Code paths of other architectures, executed on this GPU: compiled for it, with their copy engine and their limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from amk import pipeline
from tests.gpu.test_shapes import BOUNDS, check_shape

PATHS = {"a100": ("sm80", 166912), "l4": ("sm80", 101376), "rtx5090": ("sm120", 101376)}
"""Kernel path, and opt-in shared memory of a block in bytes."""


@pytest.mark.parametrize("shape", ["smollm2-135m", "llama-1b"])
@pytest.mark.parametrize("like", PATHS)
def test_logits(like: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, smem_bytes = PATHS[like]
    target = replace(pipeline.resolve("auto").as_target(), name=f"like-{like}", path=path, smem_bytes=smem_bytes)
    monkeypatch.setattr(pipeline, "resolve", lambda _: SimpleNamespace(as_target=lambda: target))
    errors = check_shape(shape, "fp16", tmp_path, (0, 17, 65, 1000))
    assert max(errors.values()) < BOUNDS["fp16"], errors
