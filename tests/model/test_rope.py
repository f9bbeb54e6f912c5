"""The rope table against the module that transformers runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from amk.errors import UsageError
from amk.model.graph import Rope
from amk.model.rope import PromptTables, inverse_frequencies, rope_table, rope_tables
from amk.model.walker import walk
from tests.model.builders import config_with

LENGTH = 3000
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.5, "high_freq_factor": 5.0},
]


def settings(scaling: dict[str, Any], theta: float, head_dim: int) -> dict[str, Any]:
    length = {"original_max_position_embeddings": 512} if scaling["rope_type"] == "llama3" else {}
    parameters = scaling | length | {"rope_theta": theta}
    return config_with(rope_parameters=parameters, max_position_embeddings=2048, head_dim=head_dim)


def reference(config: dict[str, Any]) -> Any:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    return LlamaRotaryEmbedding(LlamaConfig(**config))


def rows(module: Any, positions: range) -> npt.NDArray[np.float32]:
    """[positions, dim/2, 2] from one forward pass over `positions`."""
    import torch

    cos, sin = module(torch.zeros(1), torch.tensor(positions)[None])
    table = torch.stack([cos[0], sin[0]], -1).numpy()
    return np.asarray(table[:, : table.shape[1] // 2])


def assert_close(table: npt.NDArray[np.float32], expected: npt.NDArray[np.float32], inverse: npt.NDArray[Any]) -> None:
    """Within what five units in the last place of an inverse frequency make of the angle (torch's pow is not exact)."""
    angles = np.arange(table.shape[0])[:, None, None] * inverse[None, :, None]
    assert (np.abs(table - expected) <= 1.2e-7 + angles * 6e-7).all()


@pytest.mark.parametrize("head_dim", [16, 64, 96, 128])
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda item: f"{item['rope_type']}{item.get('factor', '')}")
def test_static_kinds(scaling: dict[str, Any], theta: float, head_dim: int) -> None:
    config = settings(scaling, theta, head_dim)
    module, rope = reference(config), walk(config).rope
    inverse = inverse_frequencies(rope)
    # For 96 torch's pow is off by a unit for one frequency, which the llama3 interpolation makes five.
    ulps = 5 if head_dim == 96 else 0
    difference = inverse.view(np.int32) - module.original_inv_freq.numpy().view(np.int32)
    assert np.abs(difference).max() <= ulps
    table = rope_table(rope, LENGTH)
    assert table.dtype == np.float32
    assert table.shape == (LENGTH, head_dim // 2, 2)
    assert_close(table, rows(module, range(LENGTH)), inverse)


@pytest.mark.parametrize("prompt", [5, 300])
def test_dynamic_as_transformers_decodes(prompt: int) -> None:
    """One pass over the prompt, then token by token past the trained length, as generate() calls it."""
    config = config_with(rope_scaling={"rope_type": "dynamic", "factor": 2.0}, max_position_embeddings=256)
    module, rope = reference(config), walk(config).rope
    parts = [rows(module, range(prompt))] + [rows(module, range(p, p + 1)) for p in range(prompt, 600)]
    table = rope_table(rope, 600, prompt)
    assert_close(table, np.concatenate(parts), inverse_frequencies(rope))
    plain = rope_table(Rope("default", rope.dim, rope.theta, 256), 600)
    assert np.array_equal(table[:256], plain[:256]) == (prompt <= 256)
    assert not np.array_equal(table[256:], plain[256:])


def test_long_table_is_made_in_blocks_without_seams() -> None:
    rope = Rope("default", 16, 10000.0, 2048)
    long = rope_table(rope, 9000)
    np.testing.assert_array_equal(rope_table(rope, 4097), long[:4097])
    assert (long[0, :, 0] == 1).all()
    assert (long[0, :, 1] == 0).all()


def test_bad_length() -> None:
    with pytest.raises(UsageError, match="max_seq = 0"):
        rope_table(Rope("default", 16, 10000.0, 2048), 0)


def test_a_prompt_makes_tables_only_where_they_depend_on_its_length() -> None:
    plain, scaled = Rope("default", 8, 1e4, 64), Rope("dynamic", 8, 1e4, 64, factor=2.0)
    fixed, varying = PromptTables((plain,), 128), PromptTables((plain, scaled), 128)
    first = fixed.for_prompt(0)
    assert first is not None
    np.testing.assert_array_equal(first, rope_tables((plain,), 128))
    assert [fixed.for_prompt(n) for n in (32, 100)] == [None, None]
    for length in (0, 100, 32):
        np.testing.assert_array_equal(varying.for_prompt(length), rope_tables((plain, scaled), 128, length))
        assert varying.for_prompt(length) is None
