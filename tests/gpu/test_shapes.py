"""Random models in real shapes: logits against fp32, at the positions where splits and blocks begin and end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest

from tests.gpu.shapes import CONFIGS

torch = pytest.importorskip("torch")
if TYPE_CHECKING:
    from amk.bench.reference import TorchReference
    from amk.runtime.cuda import CudaMachine

POSITIONS = (0, 1, 15, 16, 17, 63, 64, 65, 1000, 4095)
MAX_SEQ = 4096
BOUNDS = {"fp16": 1e-3, "bf16": 1e-3, "fp32": 1e-4}
"""Relative logits error. bf16 misses its bound on both shapes (SmolLM2's: 1.03e-3, at position 1). A likely cause, not
shown: the new row is rounded to bf16 on both sides, of sums in another order, and may fall to either side of a tie."""
SEED = 7
RERUNS = 20
SMALL = ("smollm2-135m", "llama-1b")


@pytest.mark.parametrize("kv_dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("shape", CONFIGS)
def test_logits(shape: str, kv_dtype: str, tmp_path: Path) -> None:
    if kv_dtype != "fp16" and shape not in SMALL:
        pytest.skip("the other K/V types are checked on the smaller shapes")
    errors = check_shape(shape, kv_dtype, tmp_path)
    print(shape, kv_dtype, {pos: f"{error:.1e}" for pos, error in errors.items()})
    assert max(errors.values()) < BOUNDS[kv_dtype], errors


@pytest.mark.parametrize("shape", CONFIGS)
def test_launch_slices_change_no_bit(shape: str, tmp_path: Path) -> None:
    """Twelve tokens across the edge of a split, in one launch, in two and in twelve."""
    first, steps = 57, 12
    with opened(shape, "fp16", tmp_path) as (machine, _):
        runs = [decode(machine, first, sizes) for sizes in ([steps], [5, 7], [1] * steps)]
    assert runs[0].shape == (steps, machine.vocab)
    assert runs[0].tobytes() == runs[1].tobytes() == runs[2].tobytes()


@contextmanager
def opened(shape: str, kv_dtype: str, folder: Path) -> Iterator[tuple[CudaMachine, TorchReference]]:
    """The machine and the fp32 reference of a random model."""
    import amk
    from amk.bench.reference import TorchReference
    from amk.model.source import open_model
    from amk.runtime.cuda import CudaMachine
    from amk.runtime.cuda.driver import call, driver

    (folder / "config.json").write_text(json.dumps(CONFIGS[shape]))
    artifact = amk.build(folder, max_seq=MAX_SEQ, kv_dtype=kv_dtype, random_weights=SEED, out=folder / "out")
    model = open_model(folder, SEED)
    torch.cuda.init()
    machine = CudaMachine(artifact.tables, artifact.cubin, model)
    try:
        yield machine, TorchReference(model, MAX_SEQ, call(driver().cuModuleLoadData, artifact.cubin))
    finally:
        machine.close()


def check_shape(shape: str, kv_dtype: str, folder: Path, positions: tuple[int, ...] = POSITIONS) -> dict[int, float]:
    """Relative logits error at each position, with random K/V before it."""
    from amk.bench.reference import random_cache, relative_error, set_cache

    errors = {}
    with opened(shape, kv_dtype, folder) as (machine, reference):
        keys, values = random_cache(machine, SEED)
        for pos in sorted(positions, reverse=True):
            for cache in (keys, values):
                cache[:, :, pos:] = float("nan")  # rows that must not be read
            set_cache(machine, keys, values)
            logits = run(machine, pos)
            errors[pos] = relative_error(logits, reference.step(1234 + pos, pos, keys, values))
            for _ in range(RERUNS):
                assert np.array_equal(run(machine, pos), logits), f"position {pos}: a rerun differs"
    return errors


def run(machine: CudaMachine, pos: int) -> npt.NDArray[np.float32]:
    """Logits of one step, whose outputs are poisoned before."""
    from amk.runtime.machine import Launch
    from tests.gpu.probe import poison

    poison(machine, kv=False)
    logits = machine.run(Launch(pos, [1234 + pos], 1, 0, want_logits=True), lambda _: None).logits
    assert logits is not None
    return logits[0]


def decode(machine: CudaMachine, first: int, launches: list[int]) -> npt.NDArray[np.float32]:
    """Logits of greedy decoding from position `first`, in launches of these sizes; rows before it are ones."""
    from amk.bench.reference import random_cache, set_cache
    from amk.runtime.machine import Launch

    set_cache(machine, *random_cache(machine, SEED))
    token, pos, rows = 99, first, []
    for steps in launches:
        result = machine.run(Launch(pos, [token], steps, 0, want_logits=True), lambda _: None)
        assert result.logits is not None
        rows.append(result.logits)
        token, pos = result.tokens[-1], pos + steps
    return np.concatenate(rows)
