"""The sequential test keeps its error rate however often one looks, and whatever addresses do; the panel is honest."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from autoresearch.abba import Pair, below_floor, order_of, pair_of
from autoresearch.errors import ProposalError
from autoresearch.loads import by_load, placement_of
from autoresearch.panel import ever_kept, judge_panel
from autoresearch.settings import Settings
from autoresearch.stats import Interval, Rule, interval, least_loads, proportion_upper, spent_alpha, spread
from autoresearch.workload import at_positions

POINTS = at_positions([0, 64], 128)
DEFAULTS = Settings(trials=0)
ADDRESSES = 0.0046
"""What the addresses of one load did to the latency of one schedule on an H200 (docs/research.md), as a log ratio."""

Effect = Callable[[random.Random], float]


def drawn(rng: random.Random) -> float:
    """The effect of a load: as likely better as worse, of any size."""
    return rng.gauss(0, ADDRESSES)


def either(rng: random.Random) -> float:
    """The effect of a load where addresses are good or bad."""
    return rng.choice((-ADDRESSES, ADDRESSES))


def a_load(rng: random.Random, effect: float, noise: float, pairs: int = DEFAULTS.pairs_per_load) -> list[float]:
    return [effect + rng.gauss(0, noise) for _ in range(pairs)]


def one_each(values: list[float]) -> list[list[float]]:
    """Loads of one pair."""
    return [[value] for value in values]


def normal(rng: random.Random) -> float:
    return rng.gauss(0.01, 0.003)


def spiky_times(rng: random.Random) -> float:
    """The log ratio of a pair whose times are skewed and now and then far off: symmetric, but with heavy tails."""

    def side() -> float:
        return 2 + sum(0.003 * rng.expovariate(1) + 0.05 * (rng.random() < 0.03) for _ in range(2))

    return 0.01 + math.log(side() / side())


@pytest.mark.parametrize("draw", [normal, spiky_times])
def test_coverage_with_a_look_after_every_pair(draw: Callable[[random.Random], float]) -> None:
    rng, misses, runs, alpha = random.Random(1), 0, 500, 0.1
    for _ in range(runs):
        values: list[float] = []
        for _ in range(48):
            values.append(draw(rng))
            seen = interval(one_each(values), alpha)
            if not seen.low <= 0.01 <= seen.high:
                misses += 1
                break
    assert misses / runs <= alpha


def test_interval_shrinks_and_needs_loads() -> None:
    rng = random.Random(2)
    values = one_each([rng.gauss(-0.02, 0.002) for _ in range(40)])
    widths = [interval(values[:n], 0.05).high - interval(values[:n], 0.05).low for n in (2, 6, 12, 40)]
    assert widths[0] == math.inf
    assert widths[1] > widths[2] > widths[3]
    assert interval([], 0.05) == Interval(-math.inf, math.inf, 0.0, 0, 0, 0.05)
    assert interval(values, 0.05).factor == pytest.approx(1.02, abs=2e-3)


def test_shares_of_alpha_never_exceed_it() -> None:
    assert sum(spent_alpha(0.05, k) for k in range(1, 10_000)) <= 0.05
    assert spent_alpha(0.05, 1) == 0.025


@pytest.mark.parametrize(("gain", "decision"), [(-0.05, "faster"), (0.05, "slower"), (0.0, "slower")])
def test_decisions(gain: float, decision: str) -> None:
    rule, rng = Rule(0.01, 0.003, 48), random.Random(3)
    loads: list[list[float]] = []
    while rule.decide(loads) == "more":
        loads.append(a_load(rng, gain, 0.002))
    assert rule.decide(loads) == decision
    assert len(loads) < 20


def test_no_difference_that_can_be_told() -> None:
    rule, rng = Rule(0.001, 0.0, 12), random.Random(4)
    assert rule.decide(one_each([rng.gauss(0, 0.02) for _ in range(12)])) == "undecided"


def test_more_pairs_in_a_load_are_no_more_loads() -> None:
    rng = random.Random(8)
    loads = [a_load(rng, drawn(rng), 1e-5, pairs=2) for _ in range(8)]
    longer = [load * 50 for load in loads]
    few, many = interval(loads, 0.05), interval(longer, 0.05)
    assert (few.pairs, many.pairs, few.loads, many.loads) == (16, 800, 8, 8)
    assert (many.low, many.high) == pytest.approx((few.low, few.high))


def test_a_load_without_a_pair_that_counts_does_not_count() -> None:
    loads = [[0.01, 0.02], [], [0.03]]
    seen = interval(loads, 0.5)
    assert (seen.pairs, seen.loads, seen.estimate) == (3, 2, pytest.approx((0.015 + 0.03) / 2))
    journal = [(0, 0.01, True), (0, 0.02, True), (1, 9.0, False), (1, 9.0, False), (2, 9.0, False), (2, 0.03, True)]
    pairs = {i: {"load": load, "log_ratio": x, "valid": valid} for i, (load, x, valid) in enumerate(journal)}
    assert by_load(pairs) == [[0.01, 0.02], [0.03]]


@pytest.mark.parametrize("effect", [drawn, either])
@pytest.mark.parametrize("noise", [0.001, 0.003])
def test_addresses_are_kept_no_more_often_than_alpha(effect: Effect, noise: float) -> None:
    """Panels of a schedule against itself, at a smallest gain of nothing, one comparison after the other."""
    rng, rule, runs, window = random.Random(9), Rule(0.05, 0.0, 32), 1500, 32
    kept = sum(ever_kept([a_load(rng, effect(rng), noise) for _ in range(window)], rule) for _ in range(runs))
    assert kept / runs <= rule.alpha

    # The same pairs without loading anew: an effect for all of them, and every pair taken for independent.
    def in_one_load() -> list[list[float]]:
        (pairs,) = [a_load(rng, effect(rng), noise, pairs=window)]
        return one_each(pairs)

    falsely = sum(ever_kept(in_one_load(), rule) for _ in range(200))
    assert falsely / 200 > 0.3


def test_addresses_of_two_values_over_a_whole_search() -> None:
    """The worst case, computed: loads of either sign and no other noise, the k-th candidate at its share of alpha."""
    shares = [kept_by_signs(spent_alpha(DEFAULTS.alpha, k), DEFAULTS.confirm_loads) for k in range(1, 400)]
    assert DEFAULTS.alpha / 2 < sum(shares) <= DEFAULTS.alpha


def kept_by_signs(alpha: float, most: int) -> float:
    """The chance that loads of -1 or 1 are ever "faster" within `most` loads."""
    chances, kept = {0: 1.0}, 0.0
    for count in range(1, most + 1):
        moved: dict[int, float] = {}
        for faster, chance in chances.items():
            for sign in (0, 1):
                moved[faster + sign] = moved.get(faster + sign, 0.0) + chance / 2
        ends = {n for n in moved if 2 * n > count and interval(signs(n, count), alpha).high < 0}
        kept += sum(moved.pop(n) for n in ends)
        chances = moved
    return kept


def signs(faster: int, count: int) -> list[list[float]]:
    return one_each([-1.0] * faster + [1.0] * (count - faster))


@pytest.mark.parametrize(("gain", "most"), [(0.02, 16), (0.015, 20)])
@pytest.mark.parametrize("noise", [0.001, 0.003])
def test_a_true_gain_is_found(gain: float, most: int, noise: float) -> None:
    """At the share of the tenth candidate: nearly always, in a mean of `most` loads."""
    rng, found, loads_taken, runs = random.Random(10), 0, 0, 200
    rule = DEFAULTS.confirmation(spent_alpha(DEFAULTS.alpha, 10))
    for _ in range(runs):
        loads: list[list[float]] = []
        while rule.decide(loads) == "more":
            loads.append(a_load(rng, math.log1p(-gain) + drawn(rng), noise))
        found += rule.decide(loads) == "faster"
        loads_taken += len(loads)
    assert found / runs >= 0.98
    assert loads_taken / runs <= most


def test_least_loads() -> None:
    assert [least_loads(alpha) for alpha in (0.2, 0.1, 0.05)] == [4, 5, 6]
    for alpha in (0.05, spent_alpha(0.05, 10), 1e-6):
        least = least_loads(alpha)
        assert 2.0 ** (1 - least) <= alpha
        assert interval(one_each([0.001 * i for i in range(least)]), alpha).high < math.inf
        assert interval(one_each([0.001 * i for i in range(least - 1)]), alpha).high == math.inf


def test_spread_tells_loads_from_pairs() -> None:
    rng = random.Random(11)
    seen = spread([a_load(rng, drawn(rng), 0.002) for _ in range(2000)])
    assert seen.loads == pytest.approx(ADDRESSES, rel=0.1)
    assert seen.pairs == pytest.approx(0.002, rel=0.1)
    assert spread([]).loads == spread([[0.1]]).pairs == 0.0


def test_placements_are_random_and_repeat_after_a_restart() -> None:
    placements = [placement_of(7, 3, "screen/1", load) for load in range(40)]
    assert placements == [placement_of(7, 3, "screen/1", load) for load in range(40)]
    assert 10 < [p.order for p in placements].count("AB") < 30
    shares = [share for p in placements for share in p.shares]
    assert len(set(shares)) == 80
    assert all(0 <= share < 1 for share in shares)


def test_linear_drift_cancels_in_a_pair() -> None:
    # The GPU gets 1 % slower with every measurement, the candidate is 3 % slower.
    for order in ("ABBA", "BAAB"):
        factors = {"A": 1.0, "B": 1.03}
        samples = tuple((factors[who] * (1 + 0.01 * i),) * 2 for i, who in enumerate(order))
        ratio = Pair(order, samples, True, {}).log_ratio(POINTS)
        assert ratio == pytest.approx(math.log(1.03), abs=3e-4)


def test_orders_are_random_and_repeat_after_a_restart() -> None:
    orders = [order_of(7, 3, "screen/1", i) for i in range(40)]
    assert orders == [order_of(7, 3, "screen/1", i) for i in range(40)]
    assert 10 < orders.count("ABBA") < 30


@pytest.mark.parametrize(
    "samples",
    [
        None,
        [],
        [[1, 1]] * 3,
        [[1, 1]] * 3 + [[1]],
        [[1, 1]] * 3 + [[1, -1]],
        [[1, 1]] * 3 + [[1, True]],
        [[1, 1]] * 3 + [["1", 1]],
    ],
)
def test_times_that_are_none(samples: object) -> None:
    with pytest.raises(ProposalError):
        pair_of({"samples": samples}, "ABBA", 2)


def test_below_the_floor_is_an_error() -> None:
    assert below_floor([[1.0, 2.0]], [0.9, 1.9]) is None
    assert "below the floor" in str(below_floor([[1.0, 1.8]], [0.9, 1.9]))


def test_a_noisy_panel_of_200_loads_keeps_nothing() -> None:
    rng = random.Random(5)
    panel = judge_panel([a_load(rng, drawn(rng), 0.002) for _ in range(200)], Rule(0.05, 0.003, 48), 12)
    assert (panel["pairs"], panel["loads"], panel["comparisons"]) == (400, 200, 16)
    assert (panel["kept"], panel["kept_over_all_loads"]) == (0, False)
    assert panel["kept_upper"] == pytest.approx(1 - 0.05 ** (1 / 16), abs=1e-6)
    assert panel["low"] < 0 < panel["high"]


def test_a_biased_panel_shows() -> None:
    rng = random.Random(6)
    panel = judge_panel([a_load(rng, -0.02, 0.002) for _ in range(48)], Rule(0.05, 0.003, 48), 12)
    assert panel["kept"] == 4


def test_upper_bound_of_a_rate() -> None:
    assert proportion_upper(0, 0) == proportion_upper(3, 3) == 1.0
    bounds = [proportion_upper(k, 20) for k in range(5)]
    assert all(a < b for a, b in itertools.pairwise(bounds))
    assert bounds[0] == pytest.approx(0.1391, abs=1e-4)
