"""Monte Carlo tree search over edits (Coulom 2006; progressive widening: Couetoux et al. 2011).

A node is a setting, an edge one edit of a knob. The tree is rebuilt from the history at every call: a trial belongs to
the node of its setting and its score counts for all nodes on the way. A node may have about 2 sqrt(visits) children; a
child that never ran to a measurement is a dead end, and so is a node all of whose children are.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from autoresearch.history import Trial
from autoresearch.proposers.base import Proposal, Stateless, View, knobs
from autoresearch.space import Edit, Setting

EXPLORATION = 0.02
"""In units of log ratio: 2 % of latency are worth looking for elsewhere."""

DEPTH = 6


@dataclass
class Node:
    """A setting in the tree. `value` is the mean of -score below it."""

    setting: Setting
    trial: Trial | None = None
    visits: int = 0
    total: float = 0.0
    best: float = -math.inf
    children: dict[Edit, Node] = field(default_factory=dict)

    @property
    def dead(self) -> bool:
        """Nothing below it runs."""
        if self.children:
            return (self.trial is None or self.trial.dead) and all(child.dead for child in self.children.values())
        return self.trial is not None and self.trial.dead

    def priority(self, parent_visits: int) -> float:
        """UCB1 with the best value below mixed into the mean, as only the best counts in the end."""
        value = 0.5 * self.total / self.visits + 0.5 * self.best
        return value + EXPLORATION * math.sqrt(math.log(parent_visits + 1) / self.visits)


class TreeSearch(Stateless):
    """Proposes the child that the tree most wants to see."""

    name = "mcts"

    def propose(self, view: View) -> Proposal | None:
        """Descend to a node that may still widen, and add a child there."""
        return self._descend(build_tree(view), view, DEPTH)

    def _descend(self, node: Node, view: View, depth: int) -> Proposal | None:
        """A new child of the node, or of the best of its children that has any left."""
        edits = self._untried(node, view)
        living = [child for child in node.children.values() if not child.dead and child.visits]
        if edits and (len(node.children) < 2 * math.sqrt(node.visits + 1) or not living or depth == 0):
            edit = self._choose(edits, view, view.rng)
            parent = node.trial.number if node.trial else None
            return Proposal(knobs({**node.setting, edit.knob: edit.after}), parent, f"mcts: {edit}")
        for child in sorted(living, key=lambda c: -c.priority(node.visits)) if depth else []:
            if (proposal := self._descend(child, view, depth - 1)) is not None:
                return proposal
        return None

    def _untried(self, node: Node, view: View) -> list[Edit]:
        tried = view.tried()
        edits = (
            Edit(k.name, node.setting[k.name], value)
            for k in view.space
            for value in k.neighbours(node.setting[k.name])
        )
        return [e for e in edits if view.values({**node.setting, e.knob: e.after}) not in tried]

    def _choose(self, edits: list[Edit], view: View, rng: random.Random) -> Edit:
        """What helped elsewhere, most of the time; nearby otherwise."""
        known = {(x.knob, x.before, x.after): x.median_log_ratio for x in view.lessons}
        good = [e for e in edits if (known.get((e.knob, e.before, e.after)) or 0.0) < 0]
        if good and rng.random() < 0.5:
            return min(good, key=lambda e: known[e.knob, e.before, e.after] or 0.0)
        return rng.choice(edits)


def build_tree(view: View) -> Node:
    """The tree of all trials under the default setting; trials more than one edit from any other hang off the root."""
    default = view.space.default
    root = Node(default)
    nodes: dict[tuple[int, ...], tuple[Node, list[Node]]] = {view.values(default): (root, [])}
    for trial in view.trials:
        if trial.setting is None or trial.verdict is None:
            continue
        setting = view.space.known(trial.setting)
        node, path = _place(view, nodes, setting, trial)
        node.trial = node.trial or trial
        value = -trial.score if trial.score is not None else -1.0
        for passed in [*path, node]:
            passed.visits += 1
            passed.total += value
            passed.best = max(passed.best, value)
    return root


def _place(
    view: View, nodes: dict[tuple[int, ...], tuple[Node, list[Node]]], setting: Setting, trial: Trial
) -> tuple[Node, list[Node]]:
    """The node of a setting and the nodes above it."""
    key = view.values(setting)
    if key in nodes:
        return nodes[key]
    parent = view.history.trials.get(trial.parent) if trial.parent is not None else None
    parent_key = view.values(parent.setting) if parent and parent.setting else view.values(view.space.default)
    above, path = nodes.get(parent_key, nodes[view.values(view.space.default)])
    edits = view.space.edits(above.setting, setting)
    edge = edits[0] if len(edits) == 1 else Edit("several", 0, trial.number)
    node = Node(setting)
    above.children[edge] = node
    nodes[key] = (node, [*path, above])
    return nodes[key]
