"""Loads: both sides are loaded anew every few pairs, in random order and to other addresses.

Where a side lies in memory moves its latency, and stays the same for as long as it lies there. The pairs of one load
are therefore a cluster, which the statistic takes as one observation (`autoresearch.stats`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from autoresearch.abba import CANDIDATE, INCUMBENT

LOAD_ORDERS = (INCUMBENT + CANDIDATE, CANDIDATE + INCUMBENT)


@dataclass(frozen=True)
class Placement:
    """How the two sides get into memory.

    `order` is "AB" or "BA", the side that is loaded first first. `shares` in [0, 1) are the sizes of the spacers before
    the first and before the second of them, as shares of the largest (`autoresearch.spacer`).
    """

    order: str
    shares: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """As the arguments of a worker's `load`."""
        return asdict(self)


def placement_of(seed: int, trial: int, phase: str, load: int) -> Placement:
    """The random placement of a load; the same again after a restart."""
    draw = random.Random(f"load/{seed}/{trial}/{phase}/{load}")
    return Placement(draw.choice(LOAD_ORDERS), (draw.random(), draw.random()))


def by_load(pairs: Mapping[int, Mapping[str, Any]]) -> list[list[float]]:
    """The log ratios that count, load by load in order; loads without any are left out."""
    loads: dict[int, list[float]] = {}
    for index in sorted(pairs):
        if pairs[index]["valid"]:
            loads.setdefault(int(pairs[index]["load"]), []).append(pairs[index]["log_ratio"])
    return [loads[number] for number in sorted(loads)]
