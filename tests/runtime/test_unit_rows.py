"""Units of 8 rows: the same logits as units of 16, less on the busiest SM, and tiles that hold both halves of K."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from amk.gpus import lookup
from amk.lower import Knobs, lower
from amk.lower.sizes import bands
from amk.model.bf16 import from_bf16
from amk.model.graph import ModelGraph
from amk.model.walker import walk
from amk.tape import from_fragments, pack_tiles, row_source, unfold
from schedule_ir import TensorTiles
from tests.gpu.shapes import CONFIGS
from tests.runtime.models import logits_with, random_model, relative_error, small_program, tokens_of

NARROW = {"qkv_rows": 8, "o_rows": 8, "down_rows": 8}
WIDE = {"qkv_rows": 16, "o_rows": 16, "down_rows": 16}
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
    got, expected = (logits_with(model, ids, sms, **knobs, **rows) for rows in (NARROW, WIDE))
    assert relative_error(got, expected) < 1e-6


@pytest.mark.parametrize(("columns", "warps", "rows"), [(256, 8, 8), (256, 6, 16), (128, 8, 16), (192, 6, 8)])
def test_only_where_every_warp_has_both_halves(columns: int, warps: int, rows: int) -> None:
    model = random_model(hidden_size=columns)
    program = small_program(model, 4, compute_warps=warps, qkv_rows=8)
    assert {t.unit_rows for t in program.tiles if "qkv" in t.name} == {rows}


def test_the_busiest_sm_has_less() -> None:
    """Llama-3.2-3B on 132 SMs: 5120 rows of q/k/v and 3072 of o and of down."""
    graph = published("llama-3b")
    assert busiest(graph, WIDE) == {"qkv": 48, "o": 32, "down": 32}
    assert busiest(graph, NARROW) == busiest(graph, {}) == {"qkv": 40, "o": 24, "down": 24}


def test_what_is_left_over_after_whole_rounds_is_in_units_of_8() -> None:
    """With as many units as SMs at most; else, and where there is no whole round, all units have 16 rows."""
    graph = published("llama-3b")
    assert unit_rows_of(graph, {}) == {"qkv": {16, 8}, "o": {16, 8}, "down": {16, 8}, "gate_up": {16}}
    assert unit_rows_of(published("llama-1b"), {}) == {"qkv": {16, 8}, "o": {16}, "down": {16}, "gate_up": {16}}
    assert unit_rows_of(published("llama-8b"), {}) == {"qkv": {16}, "o": {16}, "down": {16}, "gate_up": {16}}
    assert unit_rows_of(graph, {"compute_warps": 10})["qkv"] == {16}  # 192 k-steps are not 2 x 10 x a whole number


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (5120, [(0, 264, 16), (4224, 112, 8)]),
        (2112, [(0, 132, 16)]),
        (2113, [(0, 132, 16), (2112, 1, 8)]),
        (3168, [(0, 132, 16), (2112, 132, 8)]),
        (3169, [(0, 199, 16)]),
        (2048, [(0, 128, 16)]),
    ],
)
def test_bands_are_all_rows_in_order(rows: int, expected: list[tuple[int, int, int]]) -> None:
    found = bands(rows, 0, [192], 132, Knobs())
    assert [(band.first, band.units, band.rows) for band in found] == expected


def test_tapes_are_equally_long() -> None:
    """What is left over after whole rounds goes to the SMs with the shortest tapes."""
    for name in ("llama-1b", "llama-3b", "llama-8b"):
        program = lower(published(name), lookup("h200").as_target(), 4096)
        sizes = [program.buffer(f"tape.{sm}").size for sm in range(132)]
        assert max(sizes) < 1.003 * sum(sizes) / 132


def published(name: str) -> ModelGraph:
    return walk(CONFIGS[name], None)


def busiest(graph: ModelGraph, knobs: dict[str, int]) -> dict[str, int]:
    """Rows of the first layer's matrices on the SM that has most of them; gate and up are left out."""
    rows: dict[str, Counter[int]] = {}
    for kind, tiles in first_layer(graph, knobs):
        for sm in tiles.sms if kind != "gate_up" else ():
            rows.setdefault(kind, Counter())[sm] += tiles.unit_rows
    return {kind: max(of.values()) for kind, of in rows.items()}


def unit_rows_of(graph: ModelGraph, knobs: dict[str, int]) -> dict[str, set[int]]:
    """The rows of the units of the first layer's matrices."""
    found: dict[str, set[int]] = {}
    for kind, tiles in first_layer(graph, knobs):
        found.setdefault(kind, set()).add(tiles.unit_rows)
    return found


def first_layer(graph: ModelGraph, knobs: dict[str, int]) -> Iterator[tuple[str, TensorTiles]]:
    """(kind, tiles) of the first layer's matrices, of down the first piece."""
    program = lower(graph, lookup("h200").as_target(), 4096, knobs=Knobs(**knobs))
    for tiles in program.tiles:
        match tiles.name.removesuffix(".rest").split("."):
            case ["layers", "0", kind, *rest] if rest in ([], ["0", "0"]):
                yield kind, tiles


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
