"""Sizes of the lowering: pieces of the down projection, and the shared memory that they take."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amk.gpus import lookup
from amk.lower import Knobs, lower
from amk.lower.sizes import chunk_ksteps, down_parts, down_pieces, pieces_of
from amk.model.walker import walk
from schedule_ir import Program
from schedule_ir.layout import KSTEP, TILE_ROWS, ksteps
from tests.bench.fakes import graph
from tests.gpu.shapes import CONFIGS

H200 = lookup("h200").as_target()


@settings(derandomize=True)
@given(
    intermediate=st.integers(1, 30_000), parts=st.integers(1, 8), pieces=st.integers(1, 12),
    warps=st.sampled_from([4, 6, 8, 10, 12, 14]), chunk=st.sampled_from([8, 16, 24, 32, 48, 64, 96, 128]),
)  # fmt: skip
def test_pieces_cover_every_part_in_order(intermediate: int, parts: int, pieces: int, warps: int, chunk: int) -> None:
    knobs = Knobs(compute_warps=warps, chunk_ksteps=chunk)
    at = 0
    for begin, end in down_parts(intermediate, parts, knobs):
        ranges = down_pieces(begin, end, pieces, knobs)
        assert len(ranges) <= pieces
        for first, last in ranges:
            assert first == at < last
            at = last
            size = chunk_ksteps(ksteps(last - first), knobs)
            assert size == ksteps(last - first) or size % warps == 0  # chunks do not shift k-steps between warps
        assert all((last - first) % KSTEP == 0 for first, last in ranges[:-1])
    assert at == intermediate


@pytest.mark.parametrize(
    ("intermediate", "sms", "knob", "pieces"),
    [
        (8192, 132, 0, 4),  # Llama-3.2-1B: 7 rounds
        (14336, 132, 0, 7),  # Llama-3.1-8B
        (1536, 132, 0, 1),  # SmolLM2-135M: one round, the rows appear together
        (3168, 132, 0, 2),  # three whole rounds
        (3160, 132, 0, 1),  # one unit less
        (8192, 132, 1, 1),
        (1536, 132, 6, 6),
    ],
)
def test_how_many_pieces(intermediate: int, sms: int, knob: int, pieces: int) -> None:
    assert pieces_of(graph(intermediate_size=intermediate), sms, Knobs(down_pieces=knob)) == pieces


def program(pieces: int, **changes: Any) -> Program:
    return lower(graph(**changes), H200, 128, knobs=Knobs(down_pieces=pieces, down_rows=16))


def test_pieces_need_less_of_x_and_an_accumulator_per_unit() -> None:
    sizes = {"hidden_size": 3072, "intermediate_size": 8192}  # 192 units of down: one or two per SM
    whole, pieces = program(1, **sizes), program(4, **sizes)
    assert (whole.config["accumulators"], pieces.config["accumulators"]) == (0, 2)
    assert whole.buffer("shared.accumulators").size == 0
    assert pieces.buffer("shared.accumulators").size == 2 * 8 * TILE_ROWS * 4  # fp32 of 16 rows for each of 8 warps
    assert (whole.config["activation_ksteps"], pieces.config["activation_ksteps"]) == (512, 192)
    assert pieces.config["ring_stages"] > whole.config["ring_stages"]


def test_pieces_are_matrices_of_the_same_owners() -> None:
    made = program(3, intermediate_size=200)
    names = [f"layers.1.down.0.{piece}" for piece in range(3)]
    pieces = [next(tiles for tiles in made.tiles if tiles.name == name) for name in names]
    assert [tiles.columns for tiles in pieces] == [(0, 80), (80, 160), (160, 200)]
    assert len({(tiles.sms, tiles.tensors, tiles.rows) for tiles in pieces}) == 1
    assert sum(tiles.name.startswith("layers.1.down") for tiles in made.tiles) == 3


def test_attention_follows_the_q_k_v_units() -> None:
    """From the SM after the last of them, so on those that have the fewest."""
    made = program(1, hidden_size=64, intermediate_size=4096)
    for layer in range(2):
        qkv = next(tiles for tiles in made.tiles if tiles.name == f"layers.{layer}.qkv")
        heads = {
            (task.args[0], task.args[1]): sm
            for sm, *_, task in made.tasks()
            if made.variants[task.opcode].op == "append" and task.args[0] // 2 == layer
        }
        expected = {
            (2 * layer + number % 2, number // 2): (qkv.sms[-1] + 1 + number) % made.sms for number in range(48)
        }
        assert heads == expected


def limits(program: Program) -> dict[str, tuple[int, int]]:
    """Of copies on their way: at most, and until how many slots are taken, by what is copied."""
    found: dict[str, tuple[int, int]] = {"kv": (program.config["in_flight"], program.config["stocked"])}
    names = {(sm, at): tiles.name for tiles in program.tiles for sm, at in zip(tiles.sms, tiles.offsets, strict=True)}
    for sm, _, _, _, task in program.tasks():
        if program.variants[task.opcode].op == "copy_tape":
            name = re.sub(r"^layers\.\d+\.|\.rest$|\.\d+", "", names[sm, task.args[0]])
            assert found.setdefault(name, task.args[1:3]) == task.args[1:3]
    return found


@pytest.mark.parametrize(
    ("shape", "gpu", "due", "bulk", "kv"),
    [
        ("llama-1b", "h200", (3, 4), (5, 8), (4, 6)),
        ("llama-3b", "h200", (3, 5), (5, 9), (4, 6)),
        ("llama-8b", "h200", (3, 5), (5, 9), (4, 6)),
        ("llama-8b", "a100-80", (3, 4), (3, 4), (3, 4)),
    ],
)
def test_copies_in_flight_go_by_what_follows_them(
    shape: str, gpu: str, due: tuple[int, int], bulk: tuple[int, int], kv: tuple[int, int]
) -> None:
    config, target = {**CONFIGS[shape], "num_hidden_layers": 2}, lookup(gpu).as_target()
    found = limits(lower(walk(config), target, 128))
    assert found == {"qkv": due, "o": due, "down": due, "gate_up": bulk, "head": bulk, "kv": kv}
    chosen = lower(walk(config), target, 128, knobs=Knobs(in_flight=2, stocked=3, bulk_in_flight=4, bulk_stocked=2))
    assert set(limits(chosen).values()) == {(2, 3), (4, 2)}
