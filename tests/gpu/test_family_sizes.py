"""A random model of each family in a published size (fewer layers): logits against fp32 at every kind of position."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.families.real_sizes import CONFIGS
from tests.gpu import test_shapes

LAYERS = 8
MAX_SEQ = test_shapes.MAX_SEQ


@pytest.mark.parametrize("kv_dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("model", CONFIGS)
def test_logits(model: str, kv_dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CONFIGS[model] | {"num_hidden_layers": LAYERS}
    monkeypatch.setitem(test_shapes.CONFIGS, model, config)
    errors = test_shapes.check_shape(model, kv_dtype, tmp_path, positions(config.get("sliding_window")))
    print(model, kv_dtype, {pos: f"{error:.1e}" for pos, error in errors.items()})
    assert max(errors.values()) < test_shapes.BOUND, errors


def positions(window: int | None) -> tuple[int, ...]:
    """Where splits and blocks begin and end, and where the window begins to hide rows."""
    edges = () if window is None else (window - 2, window - 1, window, window + 1, window + 15, window + 16)
    return tuple(sorted({0, 1, 16, 17, 65, 1025, MAX_SEQ - 1, *(pos for pos in edges if pos < MAX_SEQ)}))
