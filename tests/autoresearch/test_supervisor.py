"""Whole nights over a fake worker: what is kept, what is refused and why, and how a night ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import IMPROVED, INFRASTRUCTURE, NOTHING_BETTER, InfrastructureError
from autoresearch.history import Trial, factor
from autoresearch.proposers import View, make_proposer
from autoresearch.proposers.base import Proposal, Stateless
from autoresearch.supervisor import Outcome, Supervisor
from tests.autoresearch.helpers import logged, settings, supervisor, write_script


class Listed(Stateless):
    """Proposes these settings, one after the other."""

    name = "listed"

    def __init__(self, *changes: Any) -> None:
        self._changes = list(changes)

    def propose(self, view: View) -> Proposal | None:
        if not self._changes:
            return None
        change = self._changes.pop(0)
        spec = change if "knobs" in change or "cuda" in change else {"knobs": {**view.incumbent[1], **change}}
        return Proposal(spec, view.incumbent[0], "listed")


def night(
    folder: Path, *changes: Any, script: dict[str, Any] | None = None, **options: Any
) -> tuple[Supervisor, Outcome]:
    """Run a night of these proposals."""
    made = supervisor(folder, write_script(folder, **(script or {})), settings(**options))
    return made, made.run(Listed(*changes))


def trials(made: Supervisor) -> list[Trial]:
    return made.study.history.of(made.subject.key)


def test_finds_what_is_faster_and_says_by_how_much(tmp_path: Path) -> None:
    made, outcome = night(tmp_path, {"in_flight": 8}, {"compute_warps": 4}, {"stocked": 10}, {"ring_stages": 8})
    assert outcome == Outcome(IMPROVED, "no more proposals")
    assert [t.verdict for t in trials(made)] == ["baseline", "kept", "rejected", "kept", "rejected"]
    assert [t.rung for t in trials(made)] == ["confirm", "confirm", "screen", "confirm", "screen"]
    headline = made.current.headline
    assert headline is not None
    assert factor(headline["high"]) < 1 / (0.9 * 0.95) < factor(headline["low"])
    assert headline["trial"] == made.incumbent.number == 4
    assert trials(made)[3].against == 2
    panel = made.current.panel[0]
    assert (panel["pairs"], panel["loads"], panel["kept"]) == (24, 12, 0)


def test_nothing_better(tmp_path: Path) -> None:
    made, outcome = night(tmp_path, {"ring_stages": 8}, {"compute_warps": 4})
    assert outcome.exit_code == NOTHING_BETTER
    assert made.current.headline is None
    assert made.current.ended == {"exit_code": NOTHING_BETTER, "reason": "no more proposals"}


def test_a_built_in_search_gets_there(tmp_path: Path) -> None:
    script = write_script(tmp_path, latency={"compute_warps": {"10": 0.96, "12": 0.92}})
    made = supervisor(tmp_path, script, settings(trials=4))
    assert made.run(make_proposer("coordinate")).exit_code == IMPROVED  # type: ignore[arg-type]
    assert (made.incumbent.setting or {})["compute_warps"] == 12


@pytest.mark.parametrize(
    ("faults", "verdict", "rung", "words"),
    [
        ({"validate stocked=8": "refuse"}, "rejected", "validate", "a race"),
        ({"smoke stocked=8": "device"}, "rejected", "smoke", "hung"),
        ({"compile stocked=8": "crash"}, "quarantined", "isolation", "took down 2 workers: crash"),
        ({"gates stocked=8": "hang"}, "quarantined", "isolation", "no answer within"),
        ({"block stocked=8": "nonsense"}, "quarantined", "isolation", "nonsense"),
        ({"lower stocked=8": "disk"}, "quarantined", "isolation", "disk"),
    ],
)
def test_every_refusal_is_recorded(faults: dict[str, str], verdict: str, rung: str, words: str, tmp_path: Path) -> None:
    script = write_script(tmp_path, faults=faults)
    made = supervisor(
        tmp_path, script, settings(deadline_scale=0.001 if "hang" in str(faults) else 1), disk_limit=4 << 20
    )
    if "hang" in str(faults):  # only the gates need to be quick
        made.settings = made.ladder.settings = made.runs.settings = replace(made.settings, deadline_scale=1 / 900)
        made.runs.settings = _Quick(made.settings)  # type: ignore[assignment]
        made.ladder.settings = made.runs.settings
    made.run(Listed({"stocked": 8}, {"in_flight": 8}))
    refused, kept = trials(made)[1:]
    assert (refused.verdict, refused.rung) == (verdict, rung)
    assert words in refused.reason
    assert kept.verdict == "kept"
    attempts = logged(tmp_path, next(iter(faults)).split()[0])
    assert sum(entry.get("stocked") == 8 for entry in attempts) == (2 if verdict == "quarantined" else 1)


class _Quick:
    """Settings whose gates have one second."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def deadline(self, method: str) -> float:
        return 1.0 if method == "gates" else 30.0


@pytest.mark.parametrize(("answer", "verdict"), [("floor", "rejected"), ("nan", "quarantined")])
def test_impossible_times_are_no_win(answer: str, verdict: str, tmp_path: Path) -> None:
    # The baseline is not timed before the first candidate when there is no A/A panel.
    made, outcome = night(tmp_path, {"in_flight": 8}, script={"faults": {"answer": answer}}, aa_loads=0)
    assert outcome.exit_code == NOTHING_BETTER
    assert trials(made)[1].verdict == verdict
    assert trials(made)[1].log_ratio is None


def test_equal_tables_are_measured_once(tmp_path: Path) -> None:
    made, _ = night(
        tmp_path, {"stocked": 8}, {"stocked": 8, "max_splits": 8}, script={"without_effect": ["max_splits"]}
    )
    assert [t.verdict for t in trials(made)] == ["baseline", "rejected", "duplicate"]
    assert trials(made)[2].reason == "lowers to the tables of trial 2"
    assert all(entry["max_splits"] == 16 for entry in logged(tmp_path, "block"))


def test_what_is_no_candidate_is_refused_on_the_first_rung(tmp_path: Path) -> None:
    made, _ = night(tmp_path, {"cuda": "evil()"}, {"stocked": 99}, {"stocked": 8})
    assert len(trials(made)) == 2
    assert [text[:10] for text in made.study.history.schema_refusals] == ["a candidat", "stocked = "]


def test_a_broken_default_is_an_infrastructure_failure(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="default schedule fails at rung validate") as failure:
        night(tmp_path, script={"faults": {"validate": "refuse"}})
    assert failure.value.exit_code == INFRASTRUCTURE


def test_a_dead_gpu_ends_the_night_and_resuming_goes_on(tmp_path: Path) -> None:
    faults = {"smoke stocked=8": "device", "probe": "device"}
    with pytest.raises(InfrastructureError, match="does not answer any more"):
        night(tmp_path, {"stocked": 8}, {"in_flight": 8}, script={"faults": faults})
    again = supervisor(tmp_path, write_script(tmp_path))
    assert again.study.history.unfinished(again.subject.key)[0].number == 2
    assert again.run(Listed({"in_flight": 8}), resume=True).exit_code == IMPROVED
    assert again.study.journal.night == 1
    assert [t.verdict for t in trials(again)] == ["baseline", "rejected", "kept"]


def test_a_changed_checkpoint_is_an_infrastructure_failure(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="checkpoint has changed"):
        night(tmp_path, {"stocked": 8}, script={"faults": {"begin stocked=8": "infrastructure"}})


def test_a_nearly_full_disk_stops_the_night(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="bytes free"):
        night(tmp_path, {"stocked": 8}, min_free_bytes=1 << 60)


def test_old_winners_win_again_or_go(tmp_path: Path) -> None:
    night(tmp_path, {"in_flight": 8})
    made, outcome = night(tmp_path, {"stocked": 8})
    assert made.incumbent.number == 2
    assert outcome.exit_code == NOTHING_BETTER  # nothing new this night
    made, _ = night(tmp_path, {"stocked": 12}, script={"latency": {}})
    assert made.incumbent.number == 1
    assert made.study.history.lineage[made.subject.key] == [1, 2, 1]


def test_budgets_and_plateau(tmp_path: Path) -> None:
    three = [{"stocked": 8}, {"stocked": 4}, {"stocked": 3}]
    assert night(tmp_path / "a", *three, trials=2)[1].reason == "budget of 2 trials used up"
    assert night(tmp_path / "b", *three, plateau=1)[1].reason == "plateau: 1 trials without an improvement"
    assert "hours used up" in night(tmp_path / "c", *three, hours=1e-6)[1].reason
    assert "GPU seconds used up" in night(tmp_path / "d", *three, gpu_seconds=0.01)[1].reason


def test_spoiled_pairs_are_kept_and_do_not_count(tmp_path: Path) -> None:
    made, _ = night(tmp_path, {"in_flight": 8}, script={"throttled": [0, 2]}, aa_loads=0)
    trial = made.study.history.trials[2]
    pairs = list(trial.pairs["screen/1"].values())
    assert {pair["load"] for pair in pairs if not pair["valid"]} == {0, 2}
    assert len(trial.loads("screen/1")) == max(pair["load"] for pair in pairs) + 1 - 2
    assert trial.verdict == "kept"
    counted = trial.loads("confirm/1")
    assert (trial.detail["pairs"], trial.detail["loads"]) == (2 * len(counted), len(counted))


def test_a_gpu_that_is_always_throttled_ends_a_measurement(tmp_path: Path) -> None:
    made, _ = night(tmp_path, {"in_flight": 8}, script={"throttled": list(range(999))}, aa_loads=0, screen_loads=5)
    trial = made.study.history.trials[2]
    assert (trial.verdict, trial.rung) == ("rejected", "screen")
    assert len(trial.pairs["screen/1"]) == 2 * 3 * 5
    assert trial.loads("screen/1") == []


@pytest.mark.parametrize("pairs_per_load", [1, 3])
def test_every_load_is_loaded_and_journalled(pairs_per_load: int, tmp_path: Path) -> None:
    made, _ = night(tmp_path, {"in_flight": 8}, {"stocked": 8}, pairs_per_load=pairs_per_load)
    events = list(made.study.journal.events())
    loads = {(e.trial, e.phase, e.idx): e for e in events if e.kind == "load"}
    pairs = Counter((e.trial, e.phase, e.body["load"]) for e in events if e.kind == "pair")
    assert set(pairs) == set(loads)
    assert set(pairs.values()) == {pairs_per_load}
    assert len(logged(tmp_path, "load")) == len(loads)
    assert len({tuple(e.body["shares"]) for e in loads.values()}) == len(loads)
    assert {e.body["order"] for e in loads.values()} == {"AB", "BA"}


def test_addresses_are_no_gain_and_hide_none(tmp_path: Path) -> None:
    """Every load moves either side by 0.46 %: the default itself is not kept, 4 % is, and its size is not far off."""
    script = {"load_sd": 0.0046 / 2**0.5, "noise": 0.001, "latency": {"in_flight": {"8": 0.96}}}
    options = {"aa_loads": 60, "min_gain": 0.0, "headline_loads": 20}
    made, outcome = night(tmp_path, {"stocked": 8}, {"in_flight": 8}, {"stocked": 3}, script=script, **options)
    assert outcome.exit_code == IMPROVED
    assert [t.verdict for t in trials(made)] == ["baseline", "rejected", "kept", "rejected"]
    panel = made.current.panel[0]
    assert (panel["kept"], panel["comparisons"]) == (0, 10)
    assert panel["low"] < 0 < panel["high"]
    assert panel["load_sd"] == pytest.approx(0.0046, rel=0.3)
    assert panel["pair_sd"] == pytest.approx(0.001, rel=0.3)
    headline = made.current.headline
    assert headline is not None
    assert (headline["pairs"], headline["loads"]) == (40, 20)
    assert factor(headline["high"]) < 1 / 0.96 < factor(headline["low"])


def test_alpha_is_shared_among_those_that_are_confirmed(tmp_path: Path) -> None:
    made, _ = night(tmp_path, {"stocked": 8}, {"compute_warps": 4}, {"in_flight": 8}, {"stocked": 10})
    assert [t.ordinal for t in trials(made)] == [None, None, None, 1, 2]
    assert [t.detail["alpha"] for t in trials(made)[3:]] == pytest.approx([0.05 / 2, 0.05 / 6])


def test_an_old_winner_is_measured_once_a_night(tmp_path: Path) -> None:
    night(tmp_path, {"in_flight": 8})
    for resume in (False, True):  # the second is a restart in the middle of the night
        made = supervisor(tmp_path, write_script(tmp_path))
        with made.night(resume):
            made.prelude()
    kinds = Counter(event.kind for event in made.study.journal.events())
    assert (kinds["resumed"], kinds["recheck"]) == (1, 1)
    assert made.incumbent.number == 2


def test_two_lanes_at_once(tmp_path: Path) -> None:
    made = supervisor(tmp_path, write_script(tmp_path), settings(trials=4), size=2)
    made.run(Listed({"in_flight": 8}, {"stocked": 10}, {"stocked": 8}, {"compute_warps": 4}))
    assert [t.verdict for t in trials(made)].count("kept") >= 1
    assert all(t.verdict for t in trials(made))
    assert (made.incumbent.setting or {})["in_flight"] == 8


def test_a_lane_that_cannot_go_on_ends_all(tmp_path: Path) -> None:
    """The others finish what they have; the night ends as a failure, and goes on when it is resumed."""
    script = write_script(tmp_path, faults={"begin stocked=8": "infrastructure"}, seconds={"smoke": 0.1})
    made = supervisor(tmp_path, script, settings(trials=50, plateau=50), size=2)
    with pytest.raises(InfrastructureError, match="checkpoint has changed"):
        made.run(make_and_count(50))
    assert len(trials(made)) < 10
    again = supervisor(tmp_path, write_script(tmp_path), settings(trials=50), size=2)
    assert again.run(Listed(), resume=True).exit_code in (IMPROVED, NOTHING_BETTER)
    assert all(t.verdict for t in trials(again))


def make_and_count(count: int) -> Listed:
    """A proposer of `count` candidates, the second of which cannot be looked at."""
    rest = [{"stocked": s, "max_splits": m} for m in (8, 12, 16, 24) for s in (2, 3, 4, 6, 10, 12)]
    return Listed({"in_flight": 8}, {"stocked": 8}, *rest[: count - 2])


def test_equal_tables_in_two_lanes_are_measured_once(tmp_path: Path) -> None:
    script = write_script(tmp_path, without_effect=["max_splits"], seconds={"validate": 0.2})
    made = supervisor(tmp_path, script, size=2)
    made.run(Listed({"stocked": 8}, {"stocked": 8, "max_splits": 8}))
    assert sorted(t.verdict for t in trials(made)[1:] if t.verdict) == ["duplicate", "rejected"]


def test_the_panel_survives_a_lost_worker_and_not_two(tmp_path: Path) -> None:
    panel = {"trials": 0, "aa_loads": 6}
    made = supervisor(tmp_path, write_script(tmp_path, faults={"floors": "crash_once"}), settings(**panel))
    assert made.run(Listed()).exit_code == NOTHING_BETTER
    assert made.current.panel[0]["loads"] == 6
    other = supervisor(tmp_path / "b", write_script(tmp_path / "b", faults={"floors": "crash"}), settings(**panel))
    with pytest.raises(InfrastructureError, match="the A/A panel lost 2 workers"):
        other.run(Listed())
