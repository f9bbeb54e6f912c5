"""When conditional accesses happen: as a set of split counts, proved to depend on `pos` in no other way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from schedule_ir.expr import Expr, ExprLike, evaluate, lift, var
from schedule_ir.layout import split_count
from validator.columns import Bools


class UnmodelledError(Exception):
    """The Program uses something that the validator cannot reason about; that is a rejection."""


class Patterns:
    """Activity patterns by number: row p of `table()` says for each split count 1..max_splits whether it is active.

    Pattern 0 is "always".
    """

    def __init__(self, config: Mapping[str, int]) -> None:
        self.counts = config["max_splits"]
        self._count = split_count(config)
        self._rows: list[tuple[bool, ...]] = [(True,) * self.counts]
        self._known: dict[ExprLike, int] = {}

    def number(self, active: ExprLike | None) -> int:
        """The pattern of an access's `active` rule."""
        if active is None:
            return 0
        if active not in self._known:
            self._known[active] = self._add(active)
        return self._known[active]

    def _add(self, active: ExprLike) -> int:
        rule = substitute(lift(active), self._count, var("count"))
        try:
            row = tuple(bool(evaluate(rule, {"count": n})) for n in range(1, self.counts + 1))
        except KeyError as error:
            raise UnmodelledError(f"an access is active by a rule of {error}, not of the split count alone") from error
        if row not in self._rows:
            self._rows.append(row)
        return self._rows.index(row)

    def table(self) -> Bools:
        """[patterns, max_splits]."""
        return np.array(self._rows, bool)


def substitute(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with every occurrence of `old` replaced."""
    if expr == old:
        return new
    if expr.op in ("var", "const"):
        return expr
    return Expr(expr.op, tuple(substitute(arg, old, new) for arg in expr.args))
