"""Units of 8 rows: the same logits as units of 16, less on the busiest SM, and tiles that hold both halves of K."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from amk.gpus import lookup
from amk.lower import Knobs, lower
from amk.model.bf16 import from_bf16
from amk.model.graph import ModelGraph
from amk.model.walker import walk
from amk.tape import from_fragments, pack_tiles, row_source, unfold
from schedule_ir import TensorTiles
from tests.gpu.shapes import CONFIGS
from tests.runtime.models import logits_with, random_model, relative_error, small_program, tokens_of

NARROW = {"qkv_rows": 8, "o_rows": 8, "down_rows": 8}
SIZES_OF_8 = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.mark.parametrize(
    ("changes", "sms", "knobs"),
    [
        ({}, 132, {}),
        ({"attention_bias": True, "mlp_bias": True}, 7, {"down_pieces": 2}),
        ({"intermediate_size": 1024}, 5, {"down_split": 2, "down_pieces": 2, "chunk_ksteps": 4}),
    ],
    ids=["many SMs", "biases and pieces", "K-parts, pieces and chunks"],
)
def test_logits_are_those_of_units_of_16(changes: dict[str, Any], sms: int, knobs: dict[str, int]) -> None:
    model, ids = random_model(**(SIZES_OF_8 | changes)), tokens_of(20)
    knobs = {"compute_warps": 4, **knobs}
    program = small_program(model, sms, **knobs, **NARROW)
    assert {t.unit_rows for t in program.tiles if "gate_up" not in t.name and t.name != "head"} == {8}
    got, expected = (logits_with(model, ids, sms, **knobs, **rows) for rows in (NARROW, {}))
    assert relative_error(got, expected) < 1e-6


@pytest.mark.parametrize(("columns", "warps", "rows"), [(256, 8, 8), (256, 6, 16), (128, 8, 16), (192, 6, 8)])
def test_only_where_every_warp_has_both_halves(columns: int, warps: int, rows: int) -> None:
    model = random_model(hidden_size=columns)
    program = small_program(model, 4, compute_warps=warps, qkv_rows=8)
    assert {t.unit_rows for t in program.tiles if "qkv" in t.name} == {rows}


def test_the_busiest_sm_has_less() -> None:
    """Llama-3.2-3B on 132 SMs: 5120 rows of q/k/v and 3072 of o and of down."""
    graph = published("llama-3b")
    assert busiest(graph, {"down_rows": 16}) == {"qkv": 48, "o": 32, "down": 32}
    assert busiest(graph, {}) == {"qkv": 48, "o": 32, "down": 24}
    assert busiest(graph, NARROW) == {"qkv": 40, "o": 24, "down": 24}


def published(name: str) -> ModelGraph:
    return walk(CONFIGS[name], None)


def busiest(graph: ModelGraph, knobs: dict[str, int]) -> dict[str, int]:
    """Rows of the first layer's matrices on the SM that has most of them."""
    program = lower(graph, lookup("h200").as_target(), 4096, knobs=Knobs(**knobs))
    most = {}
    for tiles in program.tiles:
        match tiles.name.split("."):
            case ["layers", "0", kind, *rest] if kind != "gate_up" and rest in ([], ["0", "0"]):
                most[kind] = max(Counter(tiles.sms).values()) * tiles.unit_rows
    return most


def test_a_tile_holds_a_k_step_of_each_half() -> None:
    tensor = np.random.default_rng(0).integers(0, 1 << 15, (20, 60), np.uint16)
    tiles = TensorTiles("t", ("a",), False, (20,), (0, 60), 4, (0, 0, 1), (0, 2, 0), 8)
    assert tiles.atoms == 2
    atoms = from_fragments(pack_tiles(tiles, [tensor]))
    assert atoms.shape == (3, 16, 32)
    padded = np.zeros((24, 64), np.float32)
    padded[:20, :60] = from_bf16(tensor)
    for unit in range(3):
        assert row_source(tiles, unit) == [(0, 8 * unit + i) if 8 * unit + i < 20 else (-1, -1) for i in range(8)]
        rows = padded[8 * unit : 8 * unit + 8]
        np.testing.assert_array_equal(atoms[unit], np.concatenate([rows[:, :32], rows[:, 32:]]))
    np.testing.assert_array_equal(unfold(atoms).reshape(24, 64), padded)
