"""Statements for Z3: integers that remember the exact definition of their divisions, and proof obligations.

Division by a variable would leave linear arithmetic. Here a quotient q = floor(x / d) becomes a fresh integer of which
the solver is told, for the numbers n that matter to a claim, that q >= n if and only if x >= n d. That is true of every
quotient, so a proof from it is a proof; a claim that needs more is not proved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schedule_ir.expr import Expr, Semantics, evaluate, lift
from validator.report import Obligation

RESOURCES = 3_000_000
"""Steps of the solver, as it counts them itself, after which an attempt ends: the same on every machine and load.
Obligations of the models that were tried (windows of 24 to 4,096, up to 131,072 positions) mostly take less than 50,000
and at most 420,000; about one in 2,000 loses its way, which another seed cures.
"""
SEEDS = range(4)
BACKSTOP_MS = 600_000
"""Ends a search that the count does not; never reached before it."""
LONGEST = 2**31 - 1


@dataclass
class Facts:
    """Definitions collected while terms are built. `thresholds` are the numbers that quotients are compared with."""

    thresholds: tuple[int, ...]
    known: list[Any] = field(default_factory=list)
    quotients: dict[tuple[str, str], Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Term:
    """A Z3 integer with the operators that index rules use."""

    value: Any
    facts: Facts

    def _lift(self, other: Any) -> Any:
        return other.value if isinstance(other, Term) else int(other)

    def __add__(self, other: Any) -> Term:
        return Term(self.value + self._lift(other), self.facts)

    def __radd__(self, other: Any) -> Term:
        return Term(self._lift(other) + self.value, self.facts)

    def __sub__(self, other: Any) -> Term:
        return Term(self.value - self._lift(other), self.facts)

    def __rsub__(self, other: Any) -> Term:
        return Term(self._lift(other) - self.value, self.facts)

    def __mul__(self, other: Any) -> Term:
        return Term(self.value * self._lift(other), self.facts)

    def __rmul__(self, other: Any) -> Term:
        return Term(self._lift(other) * self.value, self.facts)

    def __floordiv__(self, other: Any) -> Term:
        if not isinstance(other, Term):
            return Term(self.value / int(other), self.facts)
        return Term(_quotient(self.value, other.value, self.facts), self.facts)


def _quotient(x: Any, d: Any, facts: Facts) -> Any:
    """floor(x / d) of x >= 0 and d > 0 (which the obligations prove of the divisors)."""
    import z3

    key = (x.sexpr(), d.sexpr())
    if key not in facts.quotients:
        q = z3.Int(f"quotient {len(facts.quotients)}")
        facts.known += [(q >= n) == (x >= n * d) for n in facts.thresholds]
        facts.quotients[key] = q
    return facts.quotients[key]


def semantics(facts: Facts) -> Semantics:
    """How index rules are evaluated with terms."""

    def choose(larger: bool) -> Callable[[Any, Any], Term]:
        def pick(a: Any, b: Any) -> Term:
            import z3

            x, y = (v.value if isinstance(v, Term) else z3.IntVal(int(v)) for v in (a, b))
            return Term(z3.If(x >= y, x, y) if larger else z3.If(x <= y, x, y), facts)

        return pick

    def no_exp(_: Any) -> Any:
        raise ValueError("exp is not an index rule")

    return Semantics(choose(larger=True), choose(larger=False), no_exp)


def term(rule: Expr | int, facts: Facts, **env: Term) -> Any:
    """The Z3 value of an index rule."""
    import z3

    value = evaluate(lift(rule), env, semantics(facts))
    return value.value if isinstance(value, Term) else z3.IntVal(int(value))


@dataclass(frozen=True)
class Proof:
    """An obligation and, where it does not hold or is unknown, what the solver answered."""

    obligation: Obligation
    counterexample: str = ""

    @property
    def ok(self) -> bool:
        """Proved."""
        return self.obligation.status == "proved"


def _check(statements: list[Any]) -> tuple[Any, Any]:
    """(answer, solver): whether the statements hold together.

    What a solver has met before in its context changes the order of its search. So what an attempt there does not
    decide is tried again in contexts of its own, with several seeds: that answer is a function of the statements.
    """
    import z3

    goal = z3.And(*statements)
    answer, solver = _attempt(goal, 0)
    for seed in SEEDS:
        if answer != z3.unknown:
            break
        answer, solver = _attempt(goal.translate(z3.Context()), seed)
    return answer, solver


def _attempt(goal: Any, seed: int) -> tuple[Any, Any]:
    """Ends ("unknown") after a fixed amount of work."""
    import z3

    solver = z3.Solver(ctx=goal.ctx)
    solver.set("rlimit", RESOURCES)
    solver.set("random_seed", seed)
    solver.set("timeout", BACKSTOP_MS)
    solver.add(goal)
    return solver.check(), solver


def prove(name: str, given: list[Any], claim: Any) -> Proof:
    """Whether `claim` follows from `given`; anything but a proof is a failure."""
    import z3

    started = time.perf_counter()
    answer, solver = _check([*given, z3.Not(claim)])
    seconds = time.perf_counter() - started
    if answer == z3.unsat:
        return Proof(Obligation(name, "proved", seconds))
    if answer == z3.sat:
        model = solver.model()
        values = ", ".join(f"{d} = {model[d]}" for d in sorted(model.decls(), key=str)[:8])
        return Proof(Obligation(name, "refuted", seconds), values)
    return Proof(Obligation(name, "unknown", seconds), f"solver: {solver.reason_unknown()}")


def satisfiable(name: str, given: list[Any]) -> Proof:
    """Whether the premises of other proofs hold anywhere at all: from a contradiction everything would follow."""
    import z3

    started = time.perf_counter()
    answer, _ = _check(given)
    status = "proved" if answer == z3.sat else "unknown"
    return Proof(
        Obligation(name, status, time.perf_counter() - started),
        "" if status == "proved" else "no position satisfies the premises",
    )
