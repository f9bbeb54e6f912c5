"""SIGKILL of the supervisor at every state, then a restart: nothing lost, nothing measured twice, no orphan."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from autoresearch.errors import IMPROVED
from autoresearch.history import Trial
from autoresearch.study import Study
from tests.autoresearch.helpers import write_script

NIGHT = Path(__file__).parent / "night.py"
LATENCY = {"compute_warps": {"10": 0.9}}
STATES = (
    "night:1",
    "proposed:1",
    "before:run_start:1",
    "run_start:1",
    "content:1",
    "passed:compile:1",
    "passed:gates:1",
    "before:verdict:1",
    "verdict:1",
    "pair:aa:3",
    "before:panel:1",
    "panel:1",
    "pair:screen:2",
    "before:pair:screen:1",
    "run_end:1",
    "passed:full gates:1",
    "pair:confirm:3",
    "before:verdict:1",
    "verdict:1",
    "pair:screen:3",
    "pair:headline:4",
    "before:headline:1",
    "headline:1",
    "before:night_end:1",
)


LANE_STATES = (
    "proposed:3",
    "run_start:4",
    "content:3",
    "passed:compile:3",
    "before:turn:4",
    "pair:screen:6",
    "passed:full gates:2",
    "pair:confirm:2",
    "before:verdict:3",
    "headline:1",
)
"""Each comes in every night of two lanes, whichever is ahead: one kill a night, or the order would decide how many."""


def run(folder: Path, script: Path, kill_at: str, lanes: int = 1) -> int:
    command = [sys.executable, str(NIGHT), str(folder), str(script), kill_at, str(lanes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (-signal.SIGKILL, IMPROVED), done.stderr
    return done.returncode


def finished(folder: Path) -> list[Trial]:
    study = Study(folder / "study")
    trials = list(study.history.trials.values())
    assert all(trial.verdict for trial in trials)
    return trials


def log(folder: Path) -> list[tuple[str, dict[str, int], int]]:
    return [tuple(json.loads(line)) for line in (folder / "log.jsonl").read_text().splitlines()]


def gone(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_sigkill_at_every_state(tmp_path: Path) -> None:
    script = write_script(tmp_path, latency=LATENCY)
    kills = sum(run(tmp_path, script, state) == -signal.SIGKILL for state in STATES)
    assert kills >= len(STATES) - 3  # a state that an earlier kill has passed does not come again
    assert run(tmp_path, script, "") == IMPROVED

    clean = tmp_path / "clean"
    assert run(clean, write_script(clean, latency=LATENCY), "") == IMPROVED

    killed, whole = finished(tmp_path), finished(clean)
    assert [t.spec for t in killed] == [t.spec for t in whole]
    assert [t.verdict for t in killed] == [t.verdict for t in whole] == ["baseline", "rejected", "kept", "rejected"]
    study = Study(tmp_path / "study")
    assert list(study.history.nights) == [1]
    assert study.history.nights[1].headline is not None
    check_pairs(study, kills, tmp_path)
    assert all(gone(pid) for _, _, pid in log(tmp_path))


@pytest.mark.parametrize("state", LANE_STATES)
def test_sigkill_with_several_candidates_on_their_way(tmp_path: Path, state: str) -> None:
    script = write_script(tmp_path, latency=LATENCY)
    assert run(tmp_path, script, state, lanes=2) == -signal.SIGKILL
    assert run(tmp_path, script, "", lanes=2) == IMPROVED
    assert sorted(str(t.verdict) for t in finished(tmp_path)) == ["baseline", "kept", "rejected", "rejected"]
    study = Study(tmp_path / "study")
    assert list(study.history.nights) == [1]
    check_pairs(study, 1, tmp_path)
    assert all(gone(pid) for _, _, pid in log(tmp_path))


def check_pairs(study: Study, kills: int, folder: Path) -> None:
    """Every pair that was measured is in the journal once, but for those on their way when a kill came."""
    events = [event for event in study.journal.events() if event.kind == "pair"]
    keys = Counter((event.trial, event.phase, event.idx) for event in events)
    assert set(keys.values()) == {1}
    check_loads(study)
    for trial, phase in {(event.trial, event.phase) for event in events}:
        indices = sorted(event.idx or 0 for event in events if (event.trial, event.phase) == (trial, phase))
        assert indices == list(range(len(indices)))
    blocks = sum(method == "block" for method, _, _ in log(folder))
    assert 0 <= blocks - len(events) <= kills
    rungs = Counter((event.trial, event.phase) for event in study.journal.events() if event.kind == "passed")
    assert set(rungs.values()) == {1}


def check_loads(study: Study) -> None:
    """The pairs of a load are of one worker, begun and ended between two kills."""
    owner: dict[tuple[int | None, str | None, int], int] = {}
    worker: dict[int | None, int] = {}
    for event in study.journal.events():
        if event.kind == "run_start":
            worker[event.trial] = event.body["pid"]
        if event.kind == "pair":
            load = event.trial, event.phase, event.body["load"]
            assert owner.setdefault(load, worker[event.trial]) == worker[event.trial]
    sizes = Counter((e.trial, e.phase, e.body["load"]) for e in study.journal.events() if e.kind == "pair")
    assert set(sizes.values()) <= {1, 2}
    for trial, phase in {key[:2] for key in sizes}:
        numbers = [key[2] for key in sizes if key[:2] == (trial, phase)]
        assert sorted(numbers) == list(range(len(numbers)))


def test_a_load_that_was_cut_short_is_one_of_its_own(tmp_path: Path) -> None:
    script = write_script(tmp_path, latency=LATENCY)
    assert run(tmp_path, script, "pair:aa:3") == -signal.SIGKILL
    assert run(tmp_path, script, "") == IMPROVED
    pairs = Study(tmp_path / "study").history.panels[1, "aa"]
    loads = [pairs[index]["load"] for index in sorted(pairs)]
    assert loads[:6] == [0, 0, 1, 2, 2, 3]
    assert len(set(loads)) == 12


def test_sigkill_while_the_worker_measures_or_hangs(tmp_path: Path) -> None:
    script = write_script(tmp_path, latency=LATENCY, seconds={"block": 0.03}, faults={"smoke compute_warps=6": "hang"})
    command = [sys.executable, str(NIGHT), str(tmp_path), str(script), ""]
    for method in ("block", "smoke"):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as supervisor:
            wait_for(tmp_path, method)
            supervisor.kill()
    until = time.monotonic() + 10
    while not all(gone(pid) for _, _, pid in log(tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
    assert all(gone(pid) for _, _, pid in log(tmp_path))
    assert run(tmp_path, write_script(tmp_path, latency=LATENCY), "") == IMPROVED
    assert [t.verdict for t in finished(tmp_path)] == ["baseline", "rejected", "kept", "rejected"]


def wait_for(folder: Path, method: str) -> None:
    """Until a worker has begun `method` (smoke: of the candidate that hangs there)."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if (folder / "log.jsonl").exists():
            begun = [spec for name, spec, _ in log(folder) if name == method]
            if begun and (method == "block" or begun[-1]["compute_warps"] == 6):
                return
        time.sleep(0.02)
    raise AssertionError(f"{method} never began")
