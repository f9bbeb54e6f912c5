"""Pairs: candidate and incumbent measured in the order ABBA or BAAB, so that a linear drift cancels."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autoresearch.errors import ProposalError
from autoresearch.workload import Workload

INCUMBENT, CANDIDATE = "A", "B"
ORDERS = ("ABBA", "BAAB")


def order_of(seed: int, trial: int, phase: str, index: int) -> str:
    """The random order of a pair; the same again after a restart."""
    return random.Random(f"{seed}/{trial}/{phase}/{index}").choice(ORDERS)


@dataclass(frozen=True)
class Pair:
    """One block of four measurements: `samples[i]` are ms per token, one per point, of the side `order[i]`."""

    order: str
    samples: tuple[tuple[float, ...], ...]
    valid: bool
    clocks: dict[str, Any]

    def log_ratio(self, workload: Workload) -> float:
        """log(candidate / incumbent) of the objective; below zero the candidate is faster."""
        return math.log(self.latency(workload, CANDIDATE) / self.latency(workload, INCUMBENT))

    def latency(self, workload: Workload, side: str) -> float:
        """Objective of one side in ms: the mean of its two measurements."""
        of_side = [workload.objective(s) for s, who in zip(self.samples, self.order, strict=True) if who == side]
        return sum(of_side) / len(of_side)


def pair_of(data: dict[str, Any], order: str, points: int) -> Pair:
    """A worker's answer as a Pair. Raises ProposalError if it is not four rows of positive finite numbers."""
    rows = data.get("samples")
    if not isinstance(rows, list) or len(rows) != len(order):
        raise ProposalError(f"a pair has {len(order)} measurements, not {rows!r:.100}")
    return Pair(order, tuple(_row(row, points) for row in rows), bool(data.get("valid", True)), _clocks(data))


def _clocks(data: dict[str, Any]) -> dict[str, Any]:
    clocks = data.get("clocks")
    return clocks if isinstance(clocks, dict) else {}


def _row(row: Any, points: int) -> tuple[float, ...]:
    good = isinstance(row, list) and len(row) == points and all(_is_time(value) for value in row)
    if not good:
        raise ProposalError(f"a measurement has {points} positive times, not {row!r:.100}")
    return tuple(float(value) for value in row)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def below_floor(samples: Sequence[Sequence[float]], floors: Sequence[float]) -> str | None:
    """Which measurement is faster than the memory could be, or None: that is an error, not a win."""
    for row in samples:
        for ms, floor in zip(row, floors, strict=True):
            if ms < floor:
                return f"{ms:.4f} ms per token is below the floor of {floor:.4f} ms (bytes / bandwidth)"
    return None
