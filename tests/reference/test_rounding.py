"""The measure of rounded rows: nothing for a rounding to nearest, and for the other side of a tie its distance."""

from __future__ import annotations

import numpy as np
import pytest

from amk.runtime.cpu.kv import round_kv
from tests.reference.rounding import rounding_error

ROW = np.random.default_rng(0).normal(size=(3, 400)).astype(np.float32) * np.float32([[1e-6], [1], [300]])
HALF_UNIT = {"fp16": 2**-11, "bf16": 2**-8}
"""Half the distance of neighbours, at 1."""


@pytest.mark.parametrize("kv_dtype", ["fp16", "bf16", "fp32"])
def test_a_rounded_row_has_no_error(kv_dtype: str) -> None:
    exact = ROW.copy()
    exact[:, :2] = 0, 1  # a power of two has a nearer neighbour below
    assert rounding_error(round_kv(exact, kv_dtype), exact, kv_dtype) == 0
    assert rounding_error(round_kv(-exact, kv_dtype), -exact, kv_dtype) == 0


@pytest.mark.parametrize("kv_dtype", HALF_UNIT)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_other_side_of_a_tie_is_its_distance_off(kv_dtype: str, sign: int) -> None:
    unit = 2 * HALF_UNIT[kv_dtype]
    exact = np.float32([[sign * (1 + unit / 2 - 1e-5), 1.5]])
    cached = np.float32([[sign * (1 + unit), 1.5]])
    assert rounding_error(cached, exact, kv_dtype) == pytest.approx(1e-5 / 1.5, rel=0.02)


@pytest.mark.parametrize("kv_dtype", HALF_UNIT)
def test_a_value_one_unit_off_is_half_a_unit_off(kv_dtype: str) -> None:
    """As rounding toward zero, or a row of another position, would be."""
    cached = np.float32([[1 + 2 * HALF_UNIT[kv_dtype], 1]])
    assert rounding_error(cached, np.ones_like(cached), kv_dtype) == pytest.approx(HALF_UNIT[kv_dtype])


def test_values_of_another_type_are_refused() -> None:
    with pytest.raises(AssertionError, match="not values of bf16"):
        rounding_error(np.float32([[1.001]]), np.float32([[1.001]]), "bf16")


def test_rows_that_are_not_finite_are_no_match() -> None:
    assert not rounding_error(np.float32([[np.nan]]), np.float32([[1]]), "fp16") < 1
