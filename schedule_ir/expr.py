"""Expressions written once: printed to CUDA, evaluated with Python numbers, NumPy arrays or solver terms.

Index rules (how many attention splits, where one starts) and pointwise functions (SiLU) are of this form, so that
the kernel, the CPU runtime and the proofs cannot disagree about them. Integer division is floor division of
non-negative operands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Number = int | float


@dataclass(frozen=True)
class Expr:
    """A tree: `op` is "var", "const", or an operator of `Semantics`; `args` are its operands."""

    op: str
    args: tuple[Any, ...]

    def __add__(self, other: ExprLike) -> Expr:
        return Expr("add", (self, lift(other)))

    def __sub__(self, other: ExprLike) -> Expr:
        return Expr("sub", (self, lift(other)))

    def __mul__(self, other: ExprLike) -> Expr:
        return Expr("mul", (self, lift(other)))

    def __truediv__(self, other: ExprLike) -> Expr:
        return Expr("div", (self, lift(other)))

    def __floordiv__(self, other: ExprLike) -> Expr:
        return Expr("floordiv", (self, lift(other)))

    def __neg__(self) -> Expr:
        return Expr("sub", (Expr("const", (0,)), self))


ExprLike = Expr | int | float


def lift(value: ExprLike) -> Expr:
    """A number as a constant expression; an expression as itself."""
    return value if isinstance(value, Expr) else Expr("const", (value,))


def var(name: str) -> Expr:
    """A named input."""
    return Expr("var", (name,))


def exp(value: ExprLike) -> Expr:
    """e to the power of `value`."""
    return Expr("exp", (lift(value),))


def tanh(value: ExprLike) -> Expr:
    """The hyperbolic tangent of `value`."""
    return Expr("tanh", (lift(value),))


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger of two."""
    return Expr("max", (lift(a), lift(b)))


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller of two."""
    return Expr("min", (lift(a), lift(b)))


def ceil_div(a: ExprLike, b: ExprLike) -> Expr:
    """ceil(a / b) of a non-negative `a` and a positive `b`."""
    return (lift(a) + (lift(b) - 1)) // b


def at_least(a: ExprLike, b: ExprLike) -> Expr:
    """1 where integer a >= b, else 0."""
    return minimum(1, maximum(0, lift(a) - b + 1))


def equals(a: ExprLike, b: ExprLike) -> Expr:
    """1 where integers a == b, else 0."""
    return at_least(a, b) * at_least(b, a)


@dataclass(frozen=True)
class Semantics:
    """What the named functions mean for a kind of value; arithmetic uses the values' own operators."""

    maximum: Callable[[Any, Any], Any]
    minimum: Callable[[Any, Any], Any]
    exp: Callable[[Any], Any]
    tanh: Callable[[Any], Any] = np.tanh


NUMPY = Semantics(np.maximum, np.minimum, np.exp)
PYTHON = Semantics(max, min, lambda x: float(np.exp(x)))


def evaluate(expr: Expr, env: Mapping[str, Any], semantics: Semantics = PYTHON) -> Any:
    """The value of `expr` with the variables of `env`. Raises KeyError for an unbound variable."""
    if expr.op == "const":
        return expr.args[0]
    if expr.op == "var":
        return env[expr.args[0]]
    values = [evaluate(arg, env, semantics) for arg in expr.args]
    return _apply(expr.op, values, semantics)


def _apply(op: str, v: list[Any], semantics: Semantics) -> Any:
    match op:
        case "add":
            return v[0] + v[1]
        case "sub":
            return v[0] - v[1]
        case "mul":
            return v[0] * v[1]
        case "div":
            return v[0] / v[1]
        case "floordiv":
            return v[0] // v[1]
        case "max":
            return semantics.maximum(v[0], v[1])
        case "min":
            return semantics.minimum(v[0], v[1])
        case "exp":
            return semantics.exp(v[0])
        case "tanh":
            return semantics.tanh(v[0])
    raise ValueError(f"expression operator {op!r} is unknown")


_INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "/"}
_CALLS = {"max": "max", "min": "min", "exp": "exp_fast", "div": "__fdividef", "tanh": "tanhf"}


def to_cuda(expr: Expr) -> str:
    """`expr` as a CUDA C++ expression over variables of the same names."""
    if expr.op == "var":
        return str(expr.args[0])
    if expr.op == "const":
        value = expr.args[0]
        return f"{value!r}f" if isinstance(value, float) else str(value)
    parts = [to_cuda(arg) for arg in expr.args]
    if expr.op in _INFIX:
        return f"({parts[0]} {_INFIX[expr.op]} {parts[1]})"
    return f"{_CALLS[expr.op]}({', '.join(parts)})"
