"""What every task reads and writes, as columns, from the access rules that the ops declare in the registry.

A rule is a Python function of one task's arguments. Here it is called once per opcode (or per group of tasks that
agree in the arguments that it branches on) with arrays of arguments, so its result covers all the tasks at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from schedule_ir.expr import Expr
from schedule_ir.op import Access, How
from schedule_ir.registry import REGISTRY
from validator.activity import Patterns, UnmodelledError
from validator.columns import Bools, Columns, Ints

SPACES = ("packets", "tape", "norms", "biases", "logits")
PAIRWISE = ("gather", "add_norm", "add_post_norm")
"""Ops that poll two packets at a time, so an odd length reads one packet more."""


@dataclass(frozen=True, eq=False)
class Footprints:
    """Accesses whose place does not depend on `pos`: everything but K/V rows.

    `space` indexes SPACES; `phase` is -1 for no packet; `pattern` numbers a row of `patterns`.
    """

    task: Ints
    space: Ints
    start: Ints
    length: Ints
    write: Bools
    phase: Ints
    previous: Bools
    pattern: Ints
    patterns: Bools

    def select(self, mask: Bools) -> Footprints:
        """The accesses where `mask` holds."""
        return Footprints(
            self.task[mask], self.space[mask], self.start[mask], self.length[mask], self.write[mask], self.phase[mask],
            self.previous[mask], self.pattern[mask], self.patterns,
        )  # fmt: skip

    def of(self, space: str) -> Footprints:
        """The accesses to one space."""
        return self.select(self.space == SPACES.index(space))


def footprints(columns: Columns) -> Footprints:
    """Every access of every task. Raises UnmodelledError for a rule that it cannot use."""
    patterns = Patterns(columns.config)
    parts: list[tuple[Any, ...]] = []
    for opcode in range(len(columns.program.variants)):
        tasks = np.nonzero(columns.opcode == opcode)[0]
        if len(tasks):
            parts += _of_opcode(columns, opcode, tasks, patterns)
    arrays = [np.concatenate(column) if parts else np.zeros(0, np.int64) for column in zip(*parts, strict=True)]
    if not parts:
        arrays = [np.zeros(0, np.int64)] * 8
    task, space, start, length, write, phase, previous, pattern = arrays
    return Footprints(
        task, space, start, length, write.astype(bool), phase, previous.astype(bool), pattern, patterns.table()
    )


def _of_opcode(columns: Columns, opcode: int, tasks: Ints, patterns: Patterns) -> list[tuple[Any, ...]]:
    """Tries to pass all arguments as arrays; where the rule branches on some, passes those as numbers."""
    variant = columns.program.variants[opcode]
    for control in _choices(variant.op):
        groups = list(_groups(columns.words, tasks, control))
        try:
            accesses = [
                variant.spec.accesses(
                    _args(columns.words, group, variant.spec.fields, control), variant.constants, columns.config
                )
                for group in groups
            ]
        except (ValueError, TypeError):
            continue
        _CONTROL[variant.op] = control
        return _merge(variant.op, groups, accesses, patterns)
    raise UnmodelledError(f"the access rule of op {variant.op} cannot be evaluated")


_CONTROL: dict[str, tuple[int, ...]] = {}
"""The fields that an op's rule was last found to branch on: a guess to try first, never relied on."""


def _choices(op: str) -> Iterator[tuple[int, ...]]:
    """Sets of fields to pass as numbers, the fewest first."""
    if op in _CONTROL:
        yield _CONTROL[op]
    fields = range(len(REGISTRY[op].fields))
    for count in range(len(fields) + 1):
        yield from combinations(fields, count)


def _merge(op: str, groups: list[Ints], accesses: list[list[Access]], patterns: Patterns) -> list[tuple[Any, ...]]:
    """Columns of the accesses; single tasks whose accesses differ only in place become one part."""
    fixed = [(g, a) for g, listed in zip(groups, accesses, strict=True) for a in listed if a.space != "kv"]
    if len(fixed) < 2 or any(len(group) > 1 or a.phase is not None for group, a in fixed):
        return [_columns_of(op, access, group, patterns) for group, access in fixed]
    first = fixed[0][1]
    if any(
        (a.space, a.write, a.how, a.active) != (first.space, first.write, first.how, first.active) for _, a in fixed
    ):
        return [_columns_of(op, access, group, patterns) for group, access in fixed]
    starts, lengths = ([getattr(a, name) for _, a in fixed] for name in ("start", "length"))
    place: dict[str, Any] = {"start": _single(starts), "length": _single(lengths)}
    return [_columns_of(op, replace(first, **place), np.concatenate([g for g, _ in fixed]), patterns)]


def _single(values: list[Any]) -> Any:
    """One number per single-task group; expressions are left for `_columns_of` to refuse."""
    if any(isinstance(value, Expr) for value in values):
        return next(value for value in values if isinstance(value, Expr))
    return np.array([np.asarray(value).reshape(-1)[0] for value in values], np.int64)


def _groups(words: Ints, tasks: Ints, control: tuple[int, ...]) -> Iterator[Ints]:
    """Tasks in groups that agree in the fields `control`."""
    if not control:
        yield tasks
        return
    keys = words[tasks][:, [1 + field for field in control]]
    order = np.lexsort(keys.T[::-1])
    changes = np.nonzero((keys[order][1:] != keys[order][:-1]).any(1))[0] + 1
    yield from np.split(tasks[order], changes)


def _args(words: Ints, group: Ints, names: tuple[str, ...], control: tuple[int, ...]) -> Mapping[str, Any]:
    return {
        name: int(words[group[0], 1 + i]) if i in control else _argument(words[group, 1 + i])
        for i, name in enumerate(names)
    }


def _argument(values: Ints) -> Ints:
    """A column as the argument of a rule: padded to two entries, so that branching on it always raises."""
    return values if len(values) > 1 else np.concatenate((values, values))


def _columns_of(op: str, access: Access, group: Ints, patterns: Patterns) -> tuple[Any, ...]:
    if isinstance(access.start, Expr) or isinstance(access.length, Expr) or access.space not in SPACES:
        raise UnmodelledError(f"op {op} accesses {access.space!r} at a place that depends on pos")
    if access.write and access.how is not How.PACKET and access.space != "logits":
        raise UnmodelledError(f"op {op} writes to {access.space!r}, which nothing orders")
    n = len(group)
    length = np.asarray(access.length, np.int64)
    if op in PAIRWISE and access.how is How.PACKET:
        length = length + length % 2
    values = (
        group, SPACES.index(access.space), access.start, length, access.write,
        -1 if access.phase is None else access.phase, access.previous_epoch, patterns.number(access.active),
    )  # fmt: skip
    return tuple(_spread(value, n) for value in values)


def _spread(value: Any, n: int) -> Ints:
    """A number or the column of an argument (which may be padded) as a column of n."""
    array: Ints = np.asarray(value, np.int64)
    return array[:n] if array.ndim else np.full(n, array)
