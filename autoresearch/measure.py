"""Loads of pairs until the sequential test has seen enough. Every pair is in the journal before the next one begins."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autoresearch.abba import CANDIDATE, INCUMBENT, Pair, below_floor, order_of, pair_of
from autoresearch.errors import ProposalError
from autoresearch.link import RefusedError, Worker, WorkerLostError
from autoresearch.loads import placement_of
from autoresearch.stats import Interval, Rule, interval

if TYPE_CHECKING:
    from autoresearch.runs import Runs

SPOILED = 3
"""At most this many times the loads that are wanted are measured, those spoiled by throttling included."""


@dataclass(frozen=True)
class Measurement:
    """What the loads of a phase say."""

    decision: str
    interval: Interval

    def to_json(self) -> dict[str, Any]:
        """As the fields of a verdict."""
        i = self.interval
        bounds = {"low": i.low, "high": i.high}
        finite = {name: value if math.isfinite(value) else None for name, value in bounds.items()}
        return {"log_ratio": i.estimate, **finite, "pairs": i.pairs, "loads": i.loads, "alpha": i.alpha}


def enough(runs: Runs, trial: int, phase: str, loads: int) -> bool:
    """Whether so many loads of a phase count, or so many were spoiled that it is no use to go on."""
    return len(runs.loads(trial, phase)) >= loads or runs.loads_begun(trial, phase) >= SPOILED * loads


@dataclass
class Comparison:
    """The two sides of a worker compared in a phase of a trial.

    What was measured before a restart counts, as a load of its own: the next pair is one of a new load. Pairs that were
    spoiled are kept, and do not count.
    """

    runs: Runs
    worker: Worker
    trial: int
    phase: str

    def until(self, rule: Rule) -> Measurement:
        """Measure until `rule` decides, which looks after every load."""
        while True:
            loads = self.runs.loads(self.trial, self.phase)
            decision = rule.decide(loads)
            if decision == "more" and enough(self.runs, self.trial, self.phase, rule.max_loads):
                decision = "undecided"
            if decision != "more":
                return Measurement(decision, interval(loads, rule.alpha))
            self._load()

    def measure(self, loads: int) -> None:
        """Measure this many loads, whatever they say."""
        while not enough(self.runs, self.trial, self.phase, loads):
            self._load()

    @cached_property
    def _floors(self) -> list[float]:
        return self.runs.floors(self.worker)

    def _load(self) -> None:
        """Load both sides anew, and measure the pairs of this load."""
        runs = self.runs
        runs.check_stop()
        number = runs.loads_begun(self.trial, self.phase)
        placement = placement_of(runs.settings.seed, self.trial, self.phase, number).to_json()
        started = time.monotonic()
        self.worker.call("load", placement, runs.settings.deadline("load"))
        seconds = round(time.monotonic() - started, 3)
        runs.study.add("load", {**placement, "seconds": seconds}, trial=self.trial, phase=self.phase, idx=number)
        for _ in range(runs.settings.pairs_per_load):
            self._pair(number)

    def _pair(self, load: int) -> None:
        """Measure a pair and write it down. A time that is none ends the worker, one below the floor the candidate."""
        runs = self.runs
        runs.check_stop()
        index = runs.pair_count(self.trial, self.phase)
        order = order_of(runs.settings.seed, self.trial, self.phase, index)
        floors = self._floors
        answer = self.worker.call("block", {"order": order}, runs.settings.deadline("block"))
        try:
            pair = pair_of(answer, order, len(runs.subject.objective.points))
        except ProposalError as error:
            self.worker.close()
            raise WorkerLostError("nonsense", str(error)) from None
        if (fault := below_floor(pair.samples, floors)) is not None:
            raise RefusedError("floor", fault)
        runs.study.add("pair", {**_body(pair, runs), "load": load}, trial=self.trial, phase=self.phase, idx=index)


def _body(pair: Pair, runs: Runs) -> dict[str, Any]:
    objective = runs.subject.objective
    return {
        "order": pair.order,
        "samples": [list(row) for row in pair.samples],
        "incumbent_ms": pair.latency(objective, INCUMBENT),
        "candidate_ms": pair.latency(objective, CANDIDATE),
        "log_ratio": pair.log_ratio(objective),
        "valid": pair.valid,
        "clocks": pair.clocks,
        "mode": runs.subject.mode,
    }
