"""Tapes: the fragment order is CuTe's, and what is packed comes back."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from amk.model.bf16 import from_bf16
from amk.model.source import Model, open_model
from amk.tape import (
    bias_array,
    norm_array,
    pack_tape,
    pack_tapes,
    pack_tiles,
    row_source,
    row_table,
    to_fragments,
    unpack_unit,
)
from schedule_ir import PackedVector, Program, TensorTiles
from tests.runtime.models import program_of, save_model


def random_bits(*shape: int) -> npt.NDArray[np.uint16]:
    return np.random.default_rng(0).integers(0, 1 << 16, shape, np.uint16)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = tmp_path_factory.mktemp("model")
    save_model(path, attention_bias=True)
    return open_model(path)


@pytest.fixture(scope="module")
def program(model: Model) -> Program:
    return program_of(model)


def test_fragment_order_is_cutes() -> None:
    """The A layout of mma.m16n8k16, read from CuTe's header, maps (lane, value) to m + 16 k."""
    import pycute

    spec = importlib.util.find_spec("cutlass_library")
    assert spec is not None
    assert spec.origin is not None
    header = Path(spec.origin).parent / "source/include/cute/atom/mma_traits_sm80.hpp"
    traits = header.read_text().split("struct MMA_Traits<SM80_16x8x16_F16F16F16F16_TN>")[1]
    layout = re.search(r"ALayout\s*=\s*Layout<(Shape.*?)>;", traits, re.DOTALL)
    assert layout is not None
    text = re.sub(r"\s|_|Shape|Stride", "", layout[1]).replace("<", "(").replace(">", ")")
    shape, stride = eval(text)  # noqa: S307 - nested tuples of numbers, from a header of our own dependency
    cute = pycute.Layout(shape, stride)
    rows = random_bits(16, 16)
    atom = to_fragments(rows)[0, 0].reshape(32, 8)
    for lane in range(32):
        for value in range(8):
            at = cute(lane, value)
            assert atom[lane, value] == rows[at % 16, at // 16]


def test_fragment_order_is_the_ptx_manuals() -> None:
    rows = random_bits(16, 48)
    atoms = to_fragments(rows)[0].reshape(3, 32, 4, 2)
    for step, lane, register, half in np.ndindex(3, 32, 4, 2):
        row = lane // 4 + 8 * (register % 2)
        column = lane % 4 * 2 + half + 8 * (register // 2)
        assert atoms[step, lane, register, half] == rows[row, 16 * step + column]


def test_stacked_rows() -> None:
    tiles = TensorTiles("t", ("a", "b"), False, (20, 5), (0, 16), 1, (0, 1), (0, 0))
    assert row_table(tiles, 0).tolist() == [*range(20), *[-1] * 12]
    assert row_table(tiles, 1).tolist() == [*[-1] * 20, *range(5), *[-1] * 7]
    assert row_source(tiles, 1)[2:6] == [(0, 18), (0, 19), (1, 0), (1, 1)]
    assert row_source(tiles, 1)[9:] == [(-1, -1)] * 7


def test_interleaved_rows() -> None:
    tiles = TensorTiles("t", ("gate", "up"), True, (10, 10), (0, 16), 1, (0, 1), (0, 0))
    assert row_source(tiles, 0) == [*[(0, i) for i in range(8)], *[(1, i) for i in range(8)]]
    padding = [(-1, -1)] * 6
    assert row_source(tiles, 1) == [(0, 8), (0, 9), *padding, (1, 8), (1, 9), *padding]


def test_columns_are_cut_and_padded() -> None:
    tensor = random_bits(16, 60)
    tiles = TensorTiles("t", ("a",), False, (16,), (32, 60), 3, (0,), (0,))
    unit = unpack_unit(pack_tiles(tiles, [tensor]).reshape(-1), 0, 3)
    assert np.array_equal(unit[:, :28].view(np.uint32), from_bf16(tensor[:, 32:]).view(np.uint32))
    assert not unit[:, 28:].any()


def test_tapes_hold_every_unit_where_the_tiles_say(model: Model, program: Program) -> None:
    tapes = pack_tapes(program, model.checkpoint)
    assert [len(tape) // 256 for tape in tapes] == [program.buffer(f"tape.{sm}").size for sm in range(program.sms)]
    for tiles in program.tiles:
        tensors = [from_bf16(model.checkpoint.bf16(name)) for name in tiles.tensors]
        begin, end = tiles.columns
        for unit, (sm, offset) in enumerate(zip(tiles.sms, tiles.offsets, strict=True)):
            rows = unpack_unit(tapes[sm], offset, tiles.ksteps)
            for row, (index, source) in zip(rows, row_source(tiles, unit), strict=True):
                expected = tensors[index][source, begin:end] if index >= 0 else np.zeros(end - begin, np.float32)
                assert np.array_equal(row[: end - begin], expected)
                assert not row[end - begin :].any()


def test_one_tape_equals_that_of_all(model: Model, program: Program) -> None:
    tapes = pack_tapes(program, model.checkpoint)
    for sm in (0, 7, program.sms - 1):
        assert np.array_equal(pack_tape(program, model.checkpoint, sm), tapes[sm].view(np.uint8))


def test_norms_are_padded(model: Model, program: Program) -> None:
    norms = norm_array(program, model.checkpoint)
    assert norms.shape == (5, 80)
    assert np.array_equal(norms[4, :72], model.checkpoint.fp32("model.norm.weight"))
    assert not norms[:, 72:].any()


def test_biases_follow_the_packed_rows(model: Model, program: Program) -> None:
    biases = bias_array(program, model.checkpoint)
    names = [f"model.layers.1.self_attn.{p}_proj.bias" for p in "qkv"]
    vector = next(v for v in program.biases if v.tensors == tuple(names))
    expected = np.concatenate([model.checkpoint.fp32(name) for name in names])
    assert np.array_equal(biases[vector.offset : vector.offset + len(expected)], expected)


def test_interleaved_bias_with_a_tensor_of_zeros() -> None:
    vector = PackedVector(("", "model.layers.0.self_attn.q_proj.bias"), True, (64, 64), 0)
    assert row_table(vector, 1).reshape(8, 2, 8)[:, 0].max() == -1
    assert row_table(vector, 1).reshape(8, 2, 8)[:, 1].reshape(-1).tolist() == list(range(64))
