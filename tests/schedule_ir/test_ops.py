"""The registry, and what ops mean in NumPy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from schedule_ir import REGISTRY
from schedule_ir.layout import RECORD_WORDS
from schedule_ir.ops.activation import add_meaning, norm_meaning, split_bf16
from schedule_ir.ops.attention import append_meaning, attend_meaning, combine_meaning, rotate_meaning
from schedule_ir.ops.linear import gemv_meaning, publish_meaning, resume_meaning, scale_meaning
from schedule_ir.ops.token import sample_meaning

F32 = npt.NDArray[np.float32]


def f32(*values: object) -> F32:
    return np.array(values, np.float32)


def random(*shape: int) -> F32:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def softmax_attention(q: F32, keys: F32, values: F32, scale: float) -> npt.NDArray[np.float64]:
    scores = q.astype(np.float64) @ keys.T.astype(np.float64) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: npt.NDArray[np.float64] = weights / weights.sum(-1, keepdims=True) @ values.astype(np.float64)
    return result


@pytest.mark.parametrize("name", REGISTRY)
def test_declarations(name: str) -> None:
    op = REGISTRY[name]
    assert op.name == name
    assert len(op.fields) < RECORD_WORDS
    assert op.template.isidentifier()
    assert op.summary
    assert len({*op.fields, *op.constants}) == len(op.fields) + len(op.constants)


def test_split_bf16_keeps_16_bits() -> None:
    x = random(1000) * 1000
    assert np.abs(split_bf16(x) / x - 1).max() < 2**-16
    assert split_bf16(f32(0, 1, -2.5, 3e38)).tolist()[:3] == [0, 1, -2.5]


def test_norm_and_its_scale_are_rms_norm() -> None:
    residual, weight = random(64), random(64)
    x, squares = norm_meaning(residual, weight)
    expected = residual / np.sqrt(np.mean(residual.astype(np.float64) ** 2) + 1e-5) * weight
    np.testing.assert_allclose(x * scale_meaning(squares, 64, 1e-5), expected, rtol=3e-5)


def test_add_takes_parts_in_order() -> None:
    parts = f32([1e8], [1], [-1e8])
    assert add_meaning(f32(1), parts).tolist() == [0]


def test_gemv_of_units() -> None:
    tiles, x = random(3, 16, 48), random(48)
    assert gemv_meaning(tiles, x).shape == (3, 16)
    np.testing.assert_allclose(gemv_meaning(tiles, x), tiles.astype(np.float64) @ x, rtol=1e-4, atol=1e-5)


def test_parts_of_a_unit_add_up_in_order() -> None:
    tiles, x = random(3, 16, 48), random(48)
    parked = gemv_meaning(tiles[..., :32], x[:32])
    np.testing.assert_allclose(resume_meaning(parked, tiles[..., 32:], x[32:]), gemv_meaning(tiles, x), rtol=1e-5)
    one = np.ones((1, 1, 1), np.float32)
    sums = gemv_meaning(one, f32(1e8))
    for value in (1, -1e8):
        sums = resume_meaning(sums, one, f32(value))
    assert sums.tolist() == [[0.0]]  # fp32 all the way


def test_append_stores_one_row_of_the_chosen_heads() -> None:
    cache, rows = np.zeros((3, 4, 2), np.float32), random(2, 2)
    append_meaning(cache, slice(1, 3), 2, rows)
    np.testing.assert_array_equal(cache[1:, 2], rows)
    assert np.count_nonzero(cache) == 4


def test_publish() -> None:
    sums, bias = random(2, 16), random(2, 16)
    scale = np.float32(0.5)
    np.testing.assert_array_equal(publish_meaning(sums, scale, bias, False), sums * scale + bias)
    values = (sums * scale + bias).astype(np.float64)
    expected = values[:, :8] / (1 + np.exp(-values[:, :8])) * values[:, 8:]
    np.testing.assert_allclose(publish_meaning(sums, scale, bias, True), expected, rtol=1e-5)
    assert publish_meaning(np.full((1, 16), -1e4, np.float32), np.float32(1), None, True).tolist() == [[0.0] * 8]


@pytest.mark.parametrize("cuts", [(), (16,), (16, 32), (1, 2, 3)])
def test_attention_does_not_depend_on_the_splits(cuts: tuple[int, ...]) -> None:
    q, keys, values = random(3, 8), random(40, 8), random(40, 8)
    pairs = zip(np.split(keys, cuts), np.split(values, cuts), strict=True)
    parts = [attend_meaning(q, k, v, 0.3) for k, v in pairs]
    merged = combine_meaning(*(np.stack(same) for same in zip(*parts, strict=True)))
    np.testing.assert_allclose(merged, softmax_attention(q, keys, values, 0.3), rtol=1e-4, atol=1e-6)


def test_attention_of_many_heads_at_once() -> None:
    q, keys, values = random(2, 5, 3, 8), random(2, 5, 16, 8), random(2, 5, 16, 8)
    together = attend_meaning(q, keys, values, 0.3)
    for at in np.ndindex(2, 5):
        for whole, one in zip(together, attend_meaning(q[at], keys[at], values[at], 0.3), strict=True):
            np.testing.assert_allclose(whole[at], one, rtol=1e-5, atol=1e-6)


def test_attention_survives_large_scores() -> None:
    out, _, total = attend_meaning(f32([100]), f32([100], [-100]), f32([1], [2]), 1.0)
    assert (out / total).tolist() == [[1.0]]


def test_rotation_of_the_leading_dims() -> None:
    x, angles = random(2, 10), np.array([0.3, 1.2, 2.0])
    cos_sin = np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32)
    turned = (x[:, :3] + 1j * x[:, 3:6]) * np.exp(1j * angles)
    expected = np.concatenate([turned.real, turned.imag, x[:, 6:]], -1)
    np.testing.assert_allclose(rotate_meaning(x, cos_sin), expected, rtol=1e-5, atol=1e-6)


def test_sample() -> None:
    assert sample_meaning(f32(1, 3, 3, 2)) == 1
    assert sample_meaning(f32(1, np.nan, 3)) == -1
