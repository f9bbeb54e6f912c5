"""The search space: every knob of the lowering, as its own declaration describes it.

A field of `amk.lower.Knobs` says in its metadata which values it takes and what they change. Adding a field there
makes it searchable; nothing here names a knob.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from amk.lower import Knobs
from autoresearch.errors import ProposalError

Setting = dict[str, int]


@dataclass(frozen=True)
class Knob:
    """A choice: its `values` in order, the `default` among them, and what another value `changes`."""

    name: str
    values: tuple[int, ...]
    default: int
    changes: str

    def neighbours(self, value: int) -> list[int]:
        """The other values, those nearest in order first."""
        at = self.values.index(value)
        return sorted((v for v in self.values if v != value), key=lambda v: abs(self.values.index(v) - at))


@dataclass(frozen=True)
class Edit:
    """One knob moved from one value to another."""

    knob: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.knob} {self.before} -> {self.after}"


@dataclass(frozen=True)
class Space:
    """All knobs. A setting has a value for each of them."""

    knobs: tuple[Knob, ...]

    @property
    def default(self) -> Setting:
        """The setting of a fresh build."""
        return {knob.name: knob.default for knob in self.knobs}

    @property
    def size(self) -> int:
        """How many settings there are."""
        count = 1
        for knob in self.knobs:
            count *= len(knob.values)
        return count

    def __iter__(self) -> Iterator[Knob]:
        return iter(self.knobs)

    def knob(self, name: str) -> Knob:
        """The knob of that name. Raises ProposalError with the names there are."""
        for knob in self.knobs:
            if knob.name == name:
                return knob
        raise ProposalError(f"no knob called {name!r}; there are {', '.join(knob.name for knob in self.knobs)}")

    def complete(self, partial: Mapping[str, Any], base: Mapping[str, int] | None = None) -> Setting:
        """A full setting: `partial` over `base` (the defaults). Raises ProposalError for what is not in the space."""
        setting = {**self.default, **(base or {})}
        for name, value in partial.items():
            knob = self.knob(name)
            if isinstance(value, bool) or not isinstance(value, int) or value not in knob.values:
                raise ProposalError(f"{name} = {value!r} is not one of {', '.join(map(str, knob.values))}")
            setting[name] = value
        return setting

    def known(self, setting: Mapping[str, int] | None) -> Setting:
        """A setting of an earlier space as one of this: what it has no value for is the default."""
        old = setting or {}
        return {k.name: old[k.name] if old.get(k.name) in k.values else k.default for k in self.knobs}

    def edits(self, before: Mapping[str, int], after: Mapping[str, int]) -> list[Edit]:
        """What turns one setting into another, in the order of the knobs; a knob that is not set has its default."""
        pairs = ((k.name, before.get(k.name, k.default), after.get(k.name, k.default)) for k in self.knobs)
        return [Edit(*pair) for pair in pairs if pair[1] != pair[2]]

    def describe(self) -> list[dict[str, Any]]:
        """The space as JSON data, for an agent."""
        return [
            {"name": k.name, "values": list(k.values), "default": k.default, "changes": k.changes} for k in self.knobs
        ]


def knob_space(kind: type[Knobs] = Knobs) -> Space:
    """The space of the lowering's knobs. Raises TypeError for a knob that does not say its values."""
    return Space(tuple(_knob(field) for field in fields(kind)))


def _knob(field: Any) -> Knob:
    values = tuple(field.metadata.get("values", ()))
    if not values or field.default not in values or "changes" not in field.metadata:
        raise TypeError(
            f"knob {field.name}: metadata needs `changes`, and `values` with the default {field.default} among them"
        )
    return Knob(field.name, values, field.default, field.metadata["changes"])
