"""Code paths of other architectures, executed on this GPU: compiled for it, with their copy engine and their limits.

Each gives the tokens of the GPU's own path, and every step is within the bounds that hold for that one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from amk import pipeline
from amk.gpus import resolve
from tests.gpu.shapes import CONFIGS

pytest.importorskip("torch")

GPUS = ("a100-80", "l4", "rtx5090")
"""sm80 with 163 KB of shared memory, sm80 and sm120 with 99 KB."""
POSITIONS = (0, 17, 65, 1000)
FIRST, STEPS = 57, 24


@pytest.mark.parametrize("shape", ["smollm2-135m", "llama-1b"])
@pytest.mark.parametrize("gpu", GPUS)
def test_path(gpu: str, shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.gpu.real_size import built, check, decode, opened

    with opened(built(CONFIGS[shape], "fp16", tmp_path / "own")) as machine:
        expected, _ = decode(machine, FIRST, [STEPS])
    other, own = resolve(gpu).as_target(), resolve("auto").as_target()
    target = replace(own, name=f"like-{gpu}", path=other.path, smem_bytes=other.smem_bytes)
    monkeypatch.setattr(pipeline, "resolve", lambda _: SimpleNamespace(as_target=lambda: target))
    artifact = built(CONFIGS[shape], "fp16", tmp_path / gpu)
    assert (artifact.program.target.path, artifact.program.target.arch) == (other.path, own.arch)
    check(artifact, POSITIONS)
    with opened(artifact) as machine:
        assert decode(machine, FIRST, [STEPS])[0] == expected
