"""A random model of each family in a published size (fewer layers): every step against fp32, at every kind of place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.real_sizes import CONFIGS, WIDE, with_layers

pytest.importorskip("torch")

NARROW_LAYERS, WIDE_LAYERS = 8, 4
"""Enough for every kind of layer that a family has; tests of a GPU run side by side and share its memory."""


@pytest.mark.parametrize("kv_dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("model", CONFIGS)
def test_steps_are_the_references(model: str, kv_dtype: str, tmp_path: Path) -> None:
    from tests.gpu.real_size import MAX_SEQ, built, check

    if CONFIGS[model]["hidden_size"] >= WIDE and kv_dtype != "fp16":
        pytest.skip("the other K/V type is checked on the narrower models")
    config = with_layers(CONFIGS[model], NARROW_LAYERS, WIDE_LAYERS)
    check(built(config, kv_dtype, tmp_path), positions(config.get("sliding_window"), MAX_SEQ))


def positions(window: int | None, max_seq: int) -> tuple[int, ...]:
    """Where splits and blocks begin and end, and where the window begins to hide rows."""
    edges = () if window is None else (window - 2, window - 1, window, window + 1, window + 15, window + 16)
    return tuple(sorted({0, 1, 16, 17, 65, 1025, max_seq - 1, *(pos for pos in edges if pos < max_seq)}))
