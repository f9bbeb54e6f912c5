"""The scalings of a rotary embedding that start from the length a model was first trained for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from amk.model.config import read_bool, read_float, read_number, refused_value
from amk.model.graph import Rope


@dataclass(frozen=True)
class Settings:
    """The dictionary of settings, what is known besides, and the `length` that the scaling refers to."""

    values: Mapping[str, Any]
    dim: int
    theta: float
    length: int
    max_position: int


def _llama3(s: Settings) -> Rope:
    low, high = read_float(s.values, "low_freq_factor"), read_float(s.values, "high_freq_factor")
    if low >= high:
        raise refused_value("high_freq_factor", high, f"more than low_freq_factor ({low})")
    return Rope("llama3", s.dim, s.theta, s.length, read_float(s.values, "factor"), low, high)


def _yarn(s: Settings) -> Rope:
    """The correction range is where a pair turns `beta_fast` .. `beta_slow` times over the original length."""
    factor = read_float(s.values, "factor", s.max_position / s.length)
    low = _pair_that_turns(s, read_float(s.values, "beta_fast", 32.0))
    high = _pair_that_turns(s, read_float(s.values, "beta_slow", 1.0))
    if read_bool(s.values, "truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, s.dim - 1)
    high = high + 0.001 if low == high else high
    attention = read_float(s.values, "attention_factor", _yarn_attention(s.values, factor))
    return Rope("yarn", s.dim, s.theta, s.length, factor, attention_factor=attention, low=low, high=high)


def _pair_that_turns(s: Settings, times: float) -> float:
    """The pair of dimensions that turns so many times over the original length, as a fraction."""
    return s.dim * math.log(s.length / (times * 2 * math.pi)) / (2 * math.log(s.theta))


def _yarn_attention(values: Mapping[str, Any], factor: float) -> float:
    """The paper's sqrt(1/t), or the ratio of two of them where both mscale settings are given."""

    def of(mscale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

    over, under = (read_number(values, name, 0.0) for name in ("mscale", "mscale_all_dim"))
    return of(over) / of(under) if over and under else of(1.0)


def _longrope(s: Settings) -> Rope:
    factor = read_float(s.values, "factor", s.max_position / s.length)
    default = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(s.length))
    attention = read_float(s.values, "attention_factor", default)
    short, long = (_divisors(s.values, name, s.dim // 2) for name in ("short_factor", "long_factor"))
    return Rope(
        "longrope", s.dim, s.theta, s.length, factor, attention_factor=attention, short_divisors=short,
        long_divisors=long,
    )  # fmt: skip


def _divisors(settings: Mapping[str, Any], name: str, count: int) -> tuple[float, ...]:
    values = settings.get(name)
    if not isinstance(values, list | tuple) or len(values) != count or not all(map(_is_positive, values)):
        raise refused_value(name, values, f"a list of {count} positive numbers")
    return tuple(float(value) for value in values)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


BY_LENGTH: dict[str, Callable[[Settings], Rope]] = {"llama3": _llama3, "yarn": _yarn, "longrope": _longrope}
