"""The measured mode without its GPU: real worker processes, lanes, gates, pairs, headline and timelines."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from autoresearch.errors import IMPROVED
from autoresearch.history import Trial, factor
from autoresearch.prepare import prepare
from autoresearch.process import LocalFleet
from autoresearch.report import write_report
from autoresearch.study import Study
from autoresearch.subject import make_subject
from autoresearch.supervisor import Supervisor
from autoresearch.workload import at_positions
from tests.autoresearch.helpers import ROOT, settings
from tests.autoresearch.test_supervisor import Listed
from tests.autoresearch.toy import save_toy

WORKER = Path(__file__).parent / "rehearsal_worker.py"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> Supervisor:
    """A measured night of three candidates, all of them on their way at once."""
    folder = tmp_path_factory.mktemp("rehearsal")
    subject = make_subject(save_toy(folder / "toy"), "h200", 100, "fp16", 7, at_positions([64], 100), "measured")
    run = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); runpy.run_path({str(WORKER)!r}, run_name='__main__')"
    fleet = LocalFleet(folder / "scratch", (sys.executable, "-c", run, str(folder / "log")), size=3)
    made = Supervisor(Study(folder / "study"), subject, settings(aa_loads=6), fleet, lines.append)
    outcome = made.run(Listed({"in_flight": 5}, {"stocked": 12}, {"reduce_slots": 3}))
    assert outcome.exit_code == IMPROVED, lines
    return made


def trial_of(made: Supervisor, knob: str) -> Trial:
    """The candidate that moved this knob."""
    moved = (t for t in made.study.history.trials.values() if (t.setting or {})[knob] != made.subject.default[knob])
    return next(moved)


def test_every_gate_ran_as_on_a_gpu(night: Supervisor) -> None:
    baseline = night.study.history.trials[1]
    quick = {gate["name"]: gate for gate in baseline.passed["gates"]["gates"]}
    full = {gate["name"]: gate for gate in baseline.passed["full gates"]["gates"]}
    assert all(gate["ok"] is True for gate in {**quick, **full}.values())
    assert set(quick) == {"logits against the oracle", "bit-identical repeats", "latency floor"}
    assert set(full) == {
        "canaries, unmodified weights", "NaN and infinity propagate", "integer weights", "injected delays",
        "fresh-process replay", "logits at the workload's positions",
    }  # fmt: skip
    assert "18 positions" in quick["logits against the oracle"]["detail"]


def test_pairs_are_measured_ones_with_clocks(night: Supervisor) -> None:
    kept = trial_of(night, "in_flight")
    pair = kept.pairs["confirm/1"][0]
    assert (kept.verdict, pair["mode"], pair["valid"]) == ("kept", "measured", True)
    assert pair["clocks"]["before"]["sm_mhz"] == 1980
    assert trial_of(night, "stocked").verdict == "rejected"
    assert trial_of(night, "stocked").rung == "screen"


def test_the_headline_says_on_what_it_was_measured(night: Supervisor) -> None:
    headline = night.current.headline
    assert headline is not None
    assert headline["machine"] == {"device": "rehearsal", "arch": "sm_90", "driver": "580.0", "nvrtc": "13.0"}
    assert headline["energy"]["candidate"] > 0
    for side in ("before", "after"):
        assert headline["timelines"][side]["available"] is True
        assert headline["timelines"][side]["hand_offs"]
    assert "measured" in write_report(night.study, night.subject).read_text()


def test_one_worker_at_a_time_has_the_device(night: Supervisor) -> None:
    log = night.study.folder.parent / "log"
    uses = sorted(json.loads(line)[1:] for line in log.read_text().splitlines())
    assert len(uses) > 20
    assert all(first[1] <= second[0] for first, second in pairwise(uses))


def test_prepared_answers_are_the_ones_that_a_night_asks_for(night: Supervisor, tmp_path: Path) -> None:
    said: list[str] = []
    prepare(night.subject, tmp_path, night.settings.seed, 1, said.append)
    ready = {path.name: path.read_bytes() for path in (tmp_path / "oracle").iterdir()}
    asked = {path.name: path.read_bytes() for path in (night.study.cache / "oracle").iterdir()}
    assert ready == asked
    assert len(said) == len(ready) == 3


def test_what_counts_as_gpu_time_is_the_turns(night: Supervisor) -> None:
    used = night.current.gpu_seconds
    assert 0 < used < night.current.elapsed
    assert sum(t.gpu_seconds for t in night.study.history.trials.values()) < used


def test_progress_names_trial_state_factor_and_best(night: Supervisor, lines: list[str]) -> None:
    kept = trial_of(night, "in_flight")
    said = next(line for line in lines if line.startswith(f"trial {kept.number} kept at confirm"))
    assert f"| best {factor(kept.score or 0):.4f}x (trial {kept.number}), " in said
    assert f"trial {kept.number} (listed): listed" in lines
    assert any(line.startswith(f"trial {kept.number} against the default: ") for line in lines)
