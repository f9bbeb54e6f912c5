"""What a kind of mutation is, and the register of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from schedule_ir import Tables
from tests.validator.kinds.sheet import Sheet

Mutation = Callable[[Sheet], bool]


@dataclass(frozen=True)
class Kind:
    """A mutation: whether it is wrong by construction, and the rules that may name it."""

    name: str
    apply: Mutation
    certain: bool
    rules: frozenset[int]


KINDS: list[Kind] = []


def kind(*rules: int, certain: bool = True) -> Callable[[Mutation], Mutation]:
    """Registers a mutation that one of these rules must name (none given: any)."""

    def register(apply: Mutation) -> Mutation:
        KINDS.append(Kind(apply.__name__, apply, certain, frozenset(rules)))
        return apply

    return register


def mutate(tables: Tables, which: Kind, rng: random.Random) -> Tables | None:
    """The broken tables; None where the kind does not apply or changes nothing."""
    sheet = Sheet(tables, rng)
    if not which.apply(sheet):
        return None
    broken = sheet.tables()
    same = broken.records.shape == tables.records.shape and (broken.records == tables.records).all()
    return None if same and (broken.ranges == tables.ranges).all() and broken.header == tables.header else broken


def drop(sheet: Sheet, *ops: str) -> bool:
    """Takes out a random task of these ops."""
    found = sheet.any(*ops)
    if found:
        del found[0][found[1]]
    return found is not None


def nudge(sheet: Sheet, field: str, ops: tuple[str, ...], steps: tuple[int, ...]) -> bool:
    """Changes a field of a random task of these ops by one of these steps."""
    found = sheet.any(*ops)
    if not found:
        return False
    row, column = found[2], sheet.column(found[2], field)
    row[column] = max(0, row[column] + sheet.rng.choice(steps))
    return True


def config(sheet: Sheet, name: str, change: int) -> bool:
    """Changes a number of the configuration."""
    sheet.header["config"][name] += change
    return True
