"""From device tables to a verdict: the rules in their order, each fed by what the ones before have proved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schedule_ir.codec import Tables
from schedule_ir.target import Target
from validator.activity import UnmodelledError
from validator.columns import Columns
from validator.context import Graph
from validator.footprints import Footprints, footprints
from validator.handoffs import handoffs, nodes
from validator.matching import Matching, match
from validator.model import ModelLike
from validator.report import RULES, Obligation, Report, Violation
from validator.rules import (
    bounds,
    carried,
    codec,
    coverage,
    epochs,
    kv,
    meaning,
    producers,
    progress,
    races,
    resources,
    ring,
)

ASSUMPTIONS = (
    "the grid is launched cooperatively with one block per SM",
    "the kernel's ops access what the registry declares, in program order",
    "attend and combine meet at block barriers between their polls and their publications",
    "a warp's slice of the activation buffer and of the residual lies at the same place for every vector length",
    "a thread reads and writes only its own words of an accumulator",
    "only attend writes the new K/V row in shared memory, append reads it before a block barrier that it ends with",
    "the stream lane keeps at most as many copies on their way as the one it issues says, of K/V `in_flight`",
    "pos grows by one per token of a launch",
    "rows from earlier launches are ordered by the kernel boundary; the first token of a launch acquires nothing",
    "mailboxes start as zeros; epochs count from 1 and go on over launches until mailboxes are cleared",
    "rows from pos on in a copied K/V block are masked by attend",
    "spaces (packets, K/V, each tape, constants) are separate allocations; byte offsets are 64-bit",
)


def validate(
    tables: Tables,
    model: ModelLike | None,
    target: Target | None = None,
    *,
    rule: int | str | None = None,
    kernel: Mapping[str, int] | None = None,
) -> Report:
    """Whether the Program that `tables` hold may run on `target`, and computes `model`, for every position.

    `kernel` holds "registers" (per thread) and "shared_bytes" of the compiled kernel, where it is known. `rule` reports
    the violations of one rule only (and of those that it rests on). Never raises for bad tables: they are rejected.
    """
    started = time.perf_counter()
    run = _Run(tables, model, target, kernel)
    run.all()
    wanted = _number(rule)
    violations = tuple(v for v in run.violations if wanted is None or v.rule in (1, wanted))
    tasks = run.columns.tasks if run.columns else 0
    stats = {
        "tasks": tasks,
        "lanes": run.columns.sms * 3 if run.columns else 0,
        "handoffs": run.handoffs,
        "seconds": round(time.perf_counter() - started, 4),
    }
    reported = tuple(sorted(r for r in run.rules if wanted is None or r in (1, wanted)))
    return Report(not violations, violations, tuple(run.obligations), stats, (*ASSUMPTIONS, *run.assumptions), reported)


def _number(rule: int | str | None) -> int | None:
    if rule is None:
        return None
    names = {name: number for number, name in RULES.items()}
    number = names.get(str(rule).lower()) or (int(rule) if str(rule).isdecimal() else 0)
    if number not in RULES:
        raise ValueError(f"rule {rule!r} is none of {', '.join(f'{n} ({name})' for n, name in RULES.items())}")
    return number


@dataclass
class _Run:
    """One validation under way. A rule that cannot be checked is a violation of that rule."""

    tables: Tables
    model: ModelLike | None
    target: Target | None
    kernel: Mapping[str, int] | None
    columns: Columns | None = None
    handoffs: int = 0
    violations: list[Violation] = field(default_factory=list)
    obligations: list[Obligation] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    rules: list[int] = field(default_factory=list)

    def all(self) -> None:
        """Every rule that the ones before leave something to check for."""
        self.columns, problems = codec.check(self.tables)
        self.violations += problems
        self.rules.append(1)
        columns = self.columns
        if columns is None:
            return
        self._check(11, lambda: resources.check(columns, self.target, self.kernel))
        self.obligations.append(resources.pending(self.kernel))
        self._proofs(7, lambda: kv.check(columns))
        accesses = self._accesses(columns)
        if accesses is not None:
            self._memory(columns, accesses)

    def _accesses(self, columns: Columns) -> Footprints | None:
        found: list[Footprints] = []
        self._check(8, lambda: found.append(footprints(columns)))
        return found[0] if found else None

    def _memory(self, columns: Columns, accesses: Footprints) -> None:
        bounded = self._check(8, lambda: bounds.check(columns, accesses))
        packets = accesses.of("packets")
        tagged = self._proofs(10, lambda: epochs.check(columns, packets))
        covered = self._check(9, lambda: coverage.check(columns, accesses))
        matching, problems = match(columns)
        self.violations += problems
        if matching is None:
            return
        drained = self._check(6, lambda: ring.check(columns, matching))
        self._check(5, lambda: carried.check(columns, matching))
        if bounded and tagged:
            self._order(columns, accesses, packets, matching)
        if covered and drained and tagged:
            self._check(12, lambda: meaning.check(columns, matching, self.model))
        longest = epochs.longest(columns.config["phases"])
        self.assumptions.append(f"mailboxes are cleared, and epochs start from 1 again, after at most {longest} tokens")

    def _order(self, columns: Columns, accesses: Footprints, packets: Footprints, matching: Matching) -> None:
        found: list[Graph] = []

        def build() -> None:
            hands = handoffs(columns, packets)
            found.append(Graph(columns, accesses, matching, hands, nodes(columns, hands, matching)))

        self._check(4, build)
        if not found:
            return
        graph = found[0]
        self.handoffs = graph.hands.groups
        self._check(3, lambda: producers.check(columns, graph.hands))
        order, problems = progress.check(graph)
        self.violations += problems
        self.rules.append(2)
        if not problems:
            self._check(4, lambda: races.check(graph, order))

    def _check(self, number: int, rule: Callable[[], list[Violation] | None]) -> bool:
        """Runs a rule; whether it holds."""
        return self._proofs(number, lambda: (rule() or [], []))

    def _proofs(self, number: int, rule: Callable[[], tuple[list[Violation], list[Obligation]]]) -> bool:
        try:
            problems, obligations = rule()
        except UnmodelledError as error:
            problems, obligations = [Violation(number, f"not checked: {error}")], []
        except Exception as error:  # noqa: BLE001 (fail closed: a check that breaks has not been passed)
            problems, obligations = [Violation(number, f"not checked: {type(error).__name__}: {error}")], []
        self.violations += problems
        self.obligations += obligations
        if number not in self.rules:
            self.rules.append(number)
        return not problems
