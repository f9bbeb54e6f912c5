"""Expressions: the same value as Python numbers, as NumPy arrays and as the printed C++."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule_ir.expr import (
    NUMPY,
    Expr,
    at_least,
    ceil_div,
    equals,
    evaluate,
    lift,
    maximum,
    minimum,
    to_cuda,
    var,
)
from schedule_ir.layout import chunk_sizes, kv_block_bytes, split_begin, split_count, split_end, split_rows
from schedule_ir.ops.linear import SILU

X, Y = var("x"), var("y")
NATURAL = st.integers(0, 10_000)


@given(NATURAL, st.integers(1, 500))
def test_integer_rules(a: int, b: int) -> None:
    env = {"x": a, "y": b}
    assert evaluate(ceil_div(X, b), env) == math.ceil(a / b)
    assert evaluate(X // b, env) == a // b
    assert evaluate(at_least(X, Y), env) == int(a >= b)
    assert evaluate(equals(X, Y), env) == int(a == b)
    assert evaluate(maximum(X, Y) - minimum(X, Y), env) == abs(a - b)


@given(st.lists(st.floats(-80, 80), min_size=1, max_size=20))
def test_arrays_are_evaluated_elementwise(values: list[float]) -> None:
    array = evaluate(SILU, {"gate": np.array(values)}, NUMPY)
    assert array.tolist() == pytest.approx([evaluate(SILU, {"gate": v}) for v in values])
    assert array.tolist() == pytest.approx([v / (1 + math.exp(-v)) for v in values])


def test_unbound_variables_and_unknown_operators() -> None:
    with pytest.raises(KeyError, match="y"):
        evaluate(X + Y, {"x": 1})
    with pytest.raises(ValueError, match="'xor' is unknown"):
        evaluate(Expr("xor", (X, Y)), {"x": 1, "y": 2})


def test_cuda_text() -> None:
    # How the division is printed is the kernel's choice; that the rest is there, and in this order, is not.
    assert re.findall(r"gate|exp_fast|[+-]|1\.0f", to_cuda(SILU)) == ["gate", "exp_fast", "-", "gate", "+", "1.0f"]
    assert to_cuda(minimum(X, 3) * 2) == "(min(x, 3) * 2)"
    assert to_cuda(maximum(lift(0.5), Y)) == "max(0.5f, y)"


@given(NATURAL, st.integers(1, 64))
def test_cuda_text_of_index_rules_means_the_same(a: int, b: int) -> None:
    # C's integer / and Python's // agree on natural numbers, which is all that index rules see.
    for rule in (ceil_div(X, b), at_least(X, Y), equals(X, Y)):
        python = re.sub(r"/", "//", to_cuda(rule))
        assert eval(python, {"x": a, "y": b, "min": min, "max": max}) == evaluate(rule, {"x": a, "y": b})  # noqa: S307


CONFIGS = st.fixed_dictionaries(
    {"max_splits": st.integers(1, 16), "min_split_rows": st.integers(1, 16).map(lambda n: 16 * n)}
)


@given(CONFIGS, NATURAL)
def test_active_splits_partition_the_past(config: dict[str, int], pos: int) -> None:
    env = {"pos": pos}
    count, rows = evaluate(split_count(config), env), evaluate(split_rows(config), env)
    assert 1 <= count <= config["max_splits"]
    assert rows % 16 == 0
    begins = [evaluate(split_begin(config, s), env) for s in range(config["max_splits"])]
    ends = [evaluate(split_end(config, s), env) for s in range(config["max_splits"])]
    assert begins[0] == 0
    assert begins[1:] == ends[:-1]
    assert ends[-1] == ends[count - 1] == pos
    assert all(end - begin == rows for begin, end in zip(begins[: count - 1], ends[: count - 1], strict=True))
    assert all(begin == end for begin, end in zip(begins[count:], ends[count:], strict=True))


@given(CONFIGS, NATURAL)
def test_the_kernel_may_compare_instead_of_counting_splits(config: dict[str, int], pos: int) -> None:
    """As `Split` in kernels/splits.cuh does: which splits are active, the last and the only one."""
    count, rows = evaluate(split_count(config), {"pos": pos}), evaluate(split_rows(config), {"pos": pos})
    assert (count == 1) == (rows >= pos)
    for split in range(config["max_splits"]):
        active = split == 0 or split * rows < pos
        assert active == (split < count)
        assert (active and (split + 1) * rows >= pos) == (split == count - 1)


@given(st.integers(1, 2000), st.integers(1, 64))
def test_chunks_cover_a_unit(total: int, chunk: int) -> None:
    sizes = chunk_sizes(total, chunk)
    assert sum(sizes) == total
    assert max(sizes) <= chunk
    assert all(size == chunk for size in sizes[:-1])


def test_kv_block_bytes() -> None:
    assert kv_block_bytes({"head_dim_padded": 64, "kv_element_bytes": 2}) == 16 * 64 * 2 * 2
