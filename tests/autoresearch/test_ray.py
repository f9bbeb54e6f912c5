"""The worker protocol over a local Ray cluster of two workers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoresearch.link import RefusedError, WorkerLostError
from autoresearch.study import Study
from autoresearch.supervisor import Supervisor
from tests.autoresearch.helpers import ROOT, SPACE, WORKER, settings, subject, write_script
from tests.autoresearch.test_supervisor import Listed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="needs Ray, an extra: pip install 'amk[ray]'"
)


def command(script: Path) -> tuple[str, ...]:
    run = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); runpy.run_path({str(WORKER)!r}, run_name='__main__')"
    return sys.executable, "-c", run, str(script)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers of a local cluster, without GPUs."""
    from autoresearch.ray_fleet import RayFleet

    fleet = RayFleet(2, None, 0.0)
    yield fleet
    fleet.close()


def test_a_night_on_two_ray_workers(cluster: Any, tmp_path: Path) -> None:
    cluster._command = command(write_script(tmp_path))
    made = Supervisor(Study(tmp_path / "study"), subject(), settings(trials=3), cluster, space=SPACE)
    made.run(Listed({"in_flight": 8}, {"stocked": 8}, {"compute_warps": 4}))
    trials = made.study.history.of(made.subject.key)
    assert all(trial.verdict for trial in trials)
    assert (made.incumbent.setting or {})["in_flight"] == 8


def test_refusals_and_losses_cross_the_cluster(cluster: Any, tmp_path: Path) -> None:
    cluster._command = command(write_script(tmp_path, faults={"validate": "refuse", "smoke": "crash"}))
    with cluster.worker() as worker:
        with pytest.raises(RefusedError, match="a race"):
            worker.call("validate", {}, 10)
        with pytest.raises(WorkerLostError, match="signal 11"):
            worker.call("smoke", {}, 10)
