"""Random models in real shapes: every step against fp32, at the positions where splits and blocks begin and end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.shapes import CONFIGS

pytest.importorskip("torch")

POSITIONS = (0, 1, 15, 16, 17, 63, 64, 65, 1000, 4095)
SMALL = ("smollm2-135m", "llama-1b")


@pytest.mark.parametrize("kv_dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("shape", CONFIGS)
def test_steps_are_the_references(shape: str, kv_dtype: str, tmp_path: Path) -> None:
    from tests.gpu.real_size import built, check

    if kv_dtype != "fp16" and shape not in SMALL:
        pytest.skip("the other K/V types are checked on the smaller shapes")
    check(built(CONFIGS[shape], kv_dtype, tmp_path), POSITIONS)


@pytest.mark.parametrize(("shape", "warps"), [("smollm2-135m", 6), ("llama-1b", 8), ("llama-3b", 8)])
def test_units_of_8_rows(shape: str, warps: int, tmp_path: Path) -> None:
    from tests.gpu.real_size import built, check

    rows = {"qkv_rows": 8, "o_rows": 8, "down_rows": 8}
    artifact = built(CONFIGS[shape], "fp16", tmp_path, compute_warps=warps, **rows)
    assert {tiles.unit_rows for tiles in artifact.program.tiles if "down" in tiles.name} == {8}
    check(artifact, POSITIONS)


@pytest.mark.parametrize("shape", CONFIGS)
def test_launch_slices_change_no_bit(shape: str, tmp_path: Path) -> None:
    """Twelve tokens across the edge of a split, in one launch, in two and in twelve."""
    from tests.gpu.real_size import built, decode, opened

    first, steps = 57, 12
    with opened(built(CONFIGS[shape], "fp16", tmp_path)) as machine:
        runs = [decode(machine, first, sizes)[1] for sizes in ([steps], [5, 7], [1] * steps)]
    assert runs[0].shape == (steps, machine.vocab)
    assert runs[0].tobytes() == runs[1].tobytes() == runs[2].tobytes()
