"""A random model of each family in a published size (fewer layers): every step against fp32, at every kind of place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.real_sizes import CONFIGS

pytest.importorskip("torch")

WIDE = 5000
"""Hidden sizes from here on take gigabytes a layer."""


@pytest.mark.parametrize("kv_dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("model", CONFIGS)
def test_steps_are_the_references(model: str, kv_dtype: str, tmp_path: Path) -> None:
    from tests.gpu.real_size import MAX_SEQ, built, check

    wide = CONFIGS[model]["hidden_size"] >= WIDE
    if wide and kv_dtype != "fp16":
        pytest.skip("the other K/V type is checked on the narrower models")
    config = CONFIGS[model] | {"num_hidden_layers": layers(wide)}
    check(built(config, kv_dtype, tmp_path), positions(config.get("sliding_window"), MAX_SEQ))


def layers(wide: bool) -> int:
    """Enough for every kind of layer that a family has; tests of a GPU run side by side and share its memory."""
    return 4 if wide else 8


def positions(window: int | None, max_seq: int) -> tuple[int, ...]:
    """Where splits and blocks begin and end, and where the window begins to hide rows."""
    edges = () if window is None else (window - 2, window - 1, window, window + 1, window + 15, window + 16)
    return tuple(sorted({0, 1, 16, 17, 65, 1025, max_seq - 1, *(pos for pos in edges if pos < max_seq)}))
