"""An always-valid test of paired log ratios: look after every pair, stop whenever you like, and the error rate holds.

The confidence sequence inverts the t-test e-process with a N(0, 1) mixture over the standardised effect and the
right-Haar prior over the scale (Lai 1976; Hendriksen, de Heide, Grunwald 2021; Wang and Ramdas 2023). For n pairs with
mean m and standard deviation s, and any true mean mu and scale, the chance that mu is ever outside is at most alpha:

    |m - mu| <= s * sqrt(u * (n - 1) / n),  u = (r - 1) / (1 - r / (1 + n)),  r = (sqrt(1 + n) / alpha) ** (2 / n)

and unbounded while r >= 1 + n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MIN_SPREAD = 1e-5
"""Standard deviation assumed at least: timers are not exact, and a cost model repeats itself to the last bit."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval of the log ratio candidate / incumbent: below zero means faster."""

    low: float
    high: float
    estimate: float
    pairs: int
    alpha: float

    @property
    def factor(self) -> float:
        """How many times as fast the candidate is."""
        return math.exp(-self.estimate)

    def __str__(self) -> str:
        low, high = math.exp(-self.high), math.exp(-self.low)
        return f"{self.factor:.4f}x [{low:.4f}, {high:.4f}] ({self.pairs} pairs, alpha {self.alpha:.2g})"


def interval(log_ratios: Sequence[float], alpha: float) -> Interval:
    """The confidence interval after these pairs, valid however the number of pairs came about."""
    count = len(log_ratios)
    if count == 0:
        return Interval(-math.inf, math.inf, 0.0, 0, alpha)
    mean = math.fsum(log_ratios) / count
    if count == 1:
        return Interval(-math.inf, math.inf, mean, 1, alpha)
    variance = math.fsum((x - mean) ** 2 for x in log_ratios) / (count - 1)
    radius = max(math.sqrt(variance), MIN_SPREAD) * _radius(count, alpha)
    return Interval(mean - radius, mean + radius, mean, count, alpha)


def _radius(count: int, alpha: float) -> float:
    """Radius in standard deviations."""
    ratio = math.exp(2 / count * (0.5 * math.log1p(count) - math.log(alpha)))
    if ratio >= 1 + count:
        return math.inf
    return math.sqrt((ratio - 1) / (1 - ratio / (1 + count)) * (count - 1) / count)


def spent_alpha(alpha: float, number: int) -> float:
    """The share of `alpha` for the `number`-th candidate (from 1): they sum to at most `alpha` over any number."""
    return alpha / (number * (number + 1))


@dataclass(frozen=True)
class Rule:
    """When to stop measuring: keep if faster by `min_gain` for sure, drop if that is impossible, or at `max_pairs`.

    `min_gain` is a fraction of the latency. `hopeless` drops sooner: the interval at 1 - hopeless excludes a gain.
    """

    alpha: float
    min_gain: float
    min_pairs: int
    max_pairs: int
    hopeless: float = 0.2

    def decide(self, log_ratios: Sequence[float]) -> str:
        """One of "faster", "slower", "undecided" (after `max_pairs`) and "more"."""
        bar = math.log1p(-self.min_gain)
        count = len(log_ratios)
        if count < self.min_pairs:
            return "more"
        if interval(log_ratios, self.alpha).high < bar:
            return "faster"
        if interval(log_ratios, self.hopeless).low > bar:
            return "slower"
        return "undecided" if count >= self.max_pairs else "more"


def proportion_upper(kept: int, of: int, confidence: float = 0.95) -> float:
    """Upper bound of a rate of which `kept` in `of` were seen (Clopper-Pearson, by bisection)."""
    if of == 0 or kept >= of:
        return 1.0
    low, high = kept / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        tail = math.fsum(math.comb(of, k) * middle**k * (1 - middle) ** (of - k) for k in range(kept + 1))
        low, high = (middle, high) if tail > 1 - confidence else (low, middle)
    return high
