"""Built-in proposers: in the space, repeatable, each true to its name; memory orders what they try."""

from __future__ import annotations

import random
from typing import Any

import pytest

from autoresearch.history import History, Trial
from autoresearch.memory import lessons, transitions, warm_starts
from autoresearch.proposers import NAMES, Proposer, View, make_proposer
from autoresearch.proposers.mcts import TreeSearch, build_tree
from autoresearch.proposers.simple import Coordinate
from autoresearch.space import Setting
from autoresearch.spec import spec_of
from tests.autoresearch.helpers import SPACE

SUBJECT = "s"


def add(history: History, change: dict[str, int], base: int | None, **fields: Any) -> Trial:
    """A finished trial: `change` on top of the trial `base`."""
    before = history.trials[base].setting if base else SPACE.default
    number = history.next_trial
    setting = {**(before or {}), **change}
    defaults = {"verdict": "rejected", "rung": "screen", "parent": base, "against": base, "subject": SUBJECT}
    trial = Trial(number, night=1, spec={"knobs": setting}, key=str(number), **{**defaults, **fields})
    trial.score = fields.get("log_ratio")
    history.trials[number] = trial
    return trial


def history_of_one() -> History:
    history = History(
        subjects={SUBJECT: {"model": "m/toy", "target": {"name": "h200"}, "max_seq": 128, "mode": "measured"}}
    )
    add(history, {}, None, verdict="baseline", log_ratio=0.0)
    history.incumbents[SUBJECT] = history.baselines[SUBJECT] = 1
    return history


def view(history: History, attempt: int = 0, **more: Any) -> View:
    return View(SPACE, history, SUBJECT, 7, attempt, **more)


def built_in(name: str) -> Proposer:
    if name in ("optuna", "mixed"):
        pytest.importorskip("optuna")
    proposer = make_proposer(name)
    assert not isinstance(proposer, list)
    return proposer


def play(name: str, rounds: int, latency: Any) -> list[Setting]:
    """What a proposer proposes while `latency` (log ratio of a setting to the default) answers."""
    history, proposed = history_of_one(), []
    for _ in range(rounds):
        proposal = built_in(name).propose(view(history))
        if proposal is None:
            break
        setting = dict(spec_of(proposal.spec, SPACE).setting or {})
        proposed.append(setting)
        score = latency(setting)
        trial = add(history, setting, 1, log_ratio=score)
        if score < (history.trials[history.incumbents[SUBJECT]].score or 0) - 0.003:
            trial.verdict = "kept"
            history.incumbents[SUBJECT] = trial.number
    return proposed


def bowl(setting: Setting) -> float:
    """Best at in_flight 8, stocked 10, compute_warps 12."""
    targets = {"in_flight": 8, "stocked": 10, "compute_warps": 12}
    distance = 0
    for name, value in targets.items():
        values = SPACE.knob(name).values
        distance += abs(values.index(setting[name]) - values.index(value))
    return 0.02 * distance - 0.14


@pytest.mark.parametrize("name", sorted(NAMES))
def test_stays_in_the_space_and_repeats_after_a_restart(name: str) -> None:
    assert play(name, 8, bowl) == play(name, 8, bowl)


@pytest.mark.parametrize(("name", "rounds"), [("coordinate", 70), ("evolution", 70), ("mcts", 70), ("mixed", 60)])
def test_gets_better(name: str, rounds: int) -> None:
    start = bowl(SPACE.default)
    best = min(bowl(setting) for setting in play(name, rounds, bowl))
    assert best < start - 0.05


def test_coordinate_tries_every_single_edit_once_and_then_has_no_more() -> None:
    history = history_of_one()
    edits = []
    while (proposal := Coordinate().propose(view(history))) is not None:
        setting = dict(spec_of(proposal.spec, SPACE).setting or {})
        (edit,) = SPACE.edits(SPACE.default, setting)
        edits.append(edit)
        add(history, setting, 1, log_ratio=0.01)
    assert len(set(edits)) == len(edits) == sum(len(knob.values) - 1 for knob in SPACE)


def test_dead_ends_are_pruned() -> None:
    history = history_of_one()
    for value in (4, 6, 10):
        add(history, {"compute_warps": value}, 1, rung="validate", log_ratio=None)
    alive = add(history, {"in_flight": 6}, 1, log_ratio=-0.01)
    root = build_tree(view(history))
    assert [child.dead for child in root.children.values()] == [True, True, True, False]
    parents = set()
    for attempt in range(30):
        proposal = TreeSearch().propose(view(history, attempt))
        assert proposal is not None
        parents.add(proposal.parent)
    assert parents <= {1, alive.number}


def test_the_tree_widens_slowly() -> None:
    history = history_of_one()
    rng = random.Random(1)
    for _ in range(60):
        proposal = TreeSearch().propose(view(history))
        assert proposal is not None
        setting = dict(spec_of(proposal.spec, SPACE).setting or {})
        add(history, setting, proposal.parent, log_ratio=bowl(setting) + rng.gauss(0, 0.001))
    root = build_tree(view(history))
    assert root.visits == 61
    assert len(root.children) <= 2 * (61**0.5) + 1
    assert any(child.children for child in root.children.values())


def test_lessons_and_warm_starts() -> None:
    old = history_of_one()
    add(old, {"in_flight": 4}, 1, verdict="kept", rung="confirm", log_ratio=-0.05)
    add(old, {"stocked": 8}, 1, log_ratio=0.02)
    add(old, {"down_split": 4}, 1, rung="validate", log_ratio=None)
    add(old, {"down_split": 4, "stocked": 3}, 1, log_ratio=0.5)  # two edits teach nothing about either
    old.lineage[SUBJECT] = [1, 2]
    found = lessons([old], SPACE)
    assert [(x.knob, x.after, x.median_log_ratio, x.refused) for x in found] == [
        ("in_flight", 4, -0.05, 0),
        ("stocked", 8, 0.02, 0),
        ("down_split", 4, None, 1),
    ]
    assert found[0].where == ("toy, h200, 128 tokens, measured",)
    assert len(transitions(old, SPACE)) == 3
    (warm,) = warm_starts([old], "another", SPACE)
    assert warm["in_flight"] == 4
    assert warm_starts([old], SUBJECT, SPACE) == []


def test_what_helped_before_is_tried_first() -> None:
    old = history_of_one()
    add(old, {"max_splits": 8}, 1, verdict="kept", log_ratio=-0.05)
    proposal = Coordinate().propose(view(history_of_one(), lessons=lessons([old], SPACE)))
    assert proposal is not None
    assert proposal.why == "max_splits 16 -> 8"


def test_a_knob_that_is_gone_is_left_out_of_a_warm_start() -> None:
    old = history_of_one()
    trial = add(old, {"in_flight": 4}, 1, verdict="kept", log_ratio=-0.05)
    trial.spec["knobs"] |= {"bygone": 3, "stocked": 99}
    old.lineage[SUBJECT] = [1, trial.number]
    (warm,) = warm_starts([old], "another", SPACE)
    assert warm == SPACE.complete({"in_flight": 4})


def test_mixed_begins_with_what_won_elsewhere() -> None:
    warm = SPACE.complete({"in_flight": 4})
    proposal = built_in("mixed").propose(view(history_of_one(), warm=[warm]))
    assert proposal is not None
    assert proposal.spec == {"knobs": warm}
