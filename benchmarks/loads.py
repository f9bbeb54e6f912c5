#!/usr/bin/env python3
"""Simulates the search's sequential test: how often it keeps what is no gain, finds what is one, and in how long.

    benchmarks/loads.py [--addresses 0.0046] [--noise 0.002] [--load-seconds 0.6] [--pair-seconds 0.15] [--runs 2000]

A simulation, not a measurement: the effect of a load's addresses and the noise of a pair are normal, with these
standard deviations of the log ratio. The rules are those of the settings' defaults, for 1, 2, 4 and 8 pairs a load.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoresearch.panel import ever_kept
from autoresearch.settings import Settings
from autoresearch.stats import Rule, interval, spent_alpha

DEFAULTS = Settings(trials=0)
TENTH = spent_alpha(DEFAULTS.alpha, 10)
SEED = 1


class Bench:
    """A pretended GPU; a load takes `load_seconds`, a pair `pair_seconds`."""

    def __init__(self, options: argparse.Namespace, pairs: int) -> None:
        self.options, self.pairs, self.random = options, pairs, random.Random(SEED)

    def loads(self, gain: float) -> Iterator[list[float]]:
        """Log ratios of a candidate that takes 1 - `gain` times as long, load by load, for ever."""
        while True:
            effect = math.log1p(-gain) + self.random.gauss(0, self.options.addresses)
            yield [effect + self.random.gauss(0, self.options.noise) for _ in range(self.pairs)]

    def measured(self, gain: float, count: int) -> list[list[float]]:
        """So many loads."""
        return [load for load, _ in zip(self.loads(gain), range(count), strict=False)]

    def judged(self, gain: float, rule: Rule) -> tuple[bool, float]:
        """(kept, seconds it took) of a candidate."""
        seen: list[list[float]] = []
        for load in self.loads(gain):
            seen.append(load)
            if (decision := rule.decide(seen)) != "more":
                break
        return decision == "faster", len(seen) * (self.options.load_seconds + self.pairs * self.options.pair_seconds)


def false_keeps(options: argparse.Namespace, pairs: int) -> float:
    """The rate at which a schedule is kept against itself, uncorrected, at a smallest gain of nothing."""
    bench, rule = Bench(options, pairs), Rule(DEFAULTS.alpha, 0.0, DEFAULTS.confirm_loads)
    runs = (bench.measured(0.0, DEFAULTS.confirm_loads) for _ in range(options.runs))
    return mean(ever_kept(loads, rule) for loads in runs)


def false_keeps_in_one_load(options: argparse.Namespace) -> float:
    """The same where both sides are loaded once, and every pair counts as a load."""
    bench, rule = Bench(options, DEFAULTS.confirm_loads), Rule(DEFAULTS.alpha, 0.0, DEFAULTS.confirm_loads)
    runs = ([[pair] for pair in next(bench.loads(0.0))] for _ in range(options.runs))
    return mean(ever_kept(loads, rule) for loads in runs)


def half_width(options: argparse.Namespace, pairs: int) -> float:
    """Of the last comparison's interval, as a log ratio."""
    bench = Bench(options, pairs)
    seen = [interval(bench.measured(0.0, DEFAULTS.headline_loads), DEFAULTS.alpha) for _ in range(options.runs // 10)]
    return mean((i.high - i.low) / 2 for i in seen)


def show(options: argparse.Namespace) -> None:
    """Print the tables."""
    print(f"kept against itself, loaded once, pair by pair: {false_keeps_in_one_load(options):.1%}")
    for pairs in (1, 2, 4, 8):
        wide = half_width(options, pairs)
        print(f"{pairs} pairs a load: kept against itself {false_keeps(options, pairs):.1%}, headline +-{wide:.2%}")
        for gain in (0.0, 0.005, 0.01, 0.015, 0.02):
            print(f"  gain {gain:.1%}: {outcome(options, pairs, gain)}")


def outcome(options: argparse.Namespace, pairs: int, gain: float) -> str:
    """How the screening and the tenth candidate's confirmation end."""
    parts = []
    for name, rule in (("screened", DEFAULTS.screening), ("confirmed", DEFAULTS.confirmation(TENTH))):
        bench = Bench(options, pairs)
        ends = [bench.judged(gain, rule) for _ in range(options.runs // 4)]
        parts.append(f"{name} {mean(kept for kept, _ in ends):.1%} in {mean(seconds for _, seconds in ends):.1f} s")
    return ", ".join(parts)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("addresses", 0.0046), ("noise", 0.002), ("load-seconds", 0.6), ("pair-seconds", 0.15)):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--runs", type=int, default=2000)
    return parser.parse_args()


if __name__ == "__main__":
    show(arguments())
