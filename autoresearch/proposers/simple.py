"""Random restarts, one knob at a time, and evolution."""

from __future__ import annotations

import math
import random

from autoresearch.proposers.base import Proposal, Stateless, View, knobs
from autoresearch.space import Edit, Setting, Space


class RandomRestarts(Stateless):
    """Now and then a setting from anywhere; otherwise the incumbent with a few knobs redrawn."""

    name = "random"

    def propose(self, view: View) -> Proposal | None:
        """A random setting."""
        rng = view.rng
        number, setting = view.incumbent
        if rng.random() < 0.25:
            anywhere = {knob.name: rng.choice(knob.values) for knob in view.space}
            return Proposal(knobs(anywhere), None, "random restart")
        chosen = rng.sample(view.space.knobs, k=min(len(view.space.knobs), rng.randint(1, 3)))
        redrawn = {knob.name: rng.choice(knob.neighbours(setting[knob.name])) for knob in chosen}
        return Proposal(knobs({**setting, **redrawn}), number, "random: " + ", ".join(redrawn))


class Coordinate(Stateless):
    """Every knob of the incumbent to every other value, what helped before first, then the nearest."""

    name = "coordinate"

    def propose(self, view: View) -> Proposal | None:
        """The first single edit of the incumbent that nobody tried."""
        number, setting = view.incumbent
        tried = view.tried()
        known = {(x.knob, x.before, x.after): x.median_log_ratio for x in view.lessons}
        for edit in sorted(self._edits(view, setting), key=lambda e: self._rank(e, known, view.space)):
            changed = {**setting, edit.knob: edit.after}
            if view.values(changed) not in tried:
                return Proposal(knobs(changed), number, str(edit))
        return None

    def _edits(self, view: View, setting: Setting) -> list[Edit]:
        return [Edit(k.name, setting[k.name], value) for k in view.space for value in k.neighbours(setting[k.name])]

    def _rank(
        self, edit: Edit, known: dict[tuple[str, int, int], float | None], space: Space
    ) -> tuple[float, int]:  # fmt: skip
        """Edits that helped, then unknown ones, then those that hurt or were refused; nearest first."""
        key = (edit.knob, edit.before, edit.after)
        values = space.knob(edit.knob).values
        distance = abs(values.index(edit.after) - values.index(edit.before))
        ratio = known.get(key, 0.0)
        return (math.inf if ratio is None else round(ratio, 4)), distance


class Evolution(Stateless):
    """Parents among the fastest settings, crossed knob by knob, one or two knobs mutated."""

    name = "evolution"
    population = 8

    def propose(self, view: View) -> Proposal | None:
        """A child of two of the fastest."""
        rng, fastest = view.rng, view.scored()[: self.population]
        if not fastest:
            return None
        (_, number, first), (_, _, second) = (self._pick(fastest, rng) for _ in range(2))
        child = {k.name: rng.choice((first, second))[k.name] for k in view.space}
        for knob in rng.sample(view.space.knobs, k=rng.randint(1, 2)):
            near = knob.neighbours(child[knob.name])
            child[knob.name] = near[min(int(rng.expovariate(1.0)), len(near) - 1)]
        return Proposal(knobs(child), number, "evolution")

    def _pick(
        self, ranked: list[tuple[float, int, Setting]], rng: random.Random
    ) -> tuple[float, int, Setting]:  # fmt: skip
        """The better of two drawn."""
        return ranked[min(rng.randrange(len(ranked)), rng.randrange(len(ranked)))]
