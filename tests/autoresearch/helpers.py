"""A search over a fake worker, in a folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amk.gpus import lookup
from autoresearch.process import LocalFleet
from autoresearch.settings import Settings
from autoresearch.space import Knob, Space
from autoresearch.study import Study
from autoresearch.subject import Subject
from autoresearch.supervisor import Supervisor
from autoresearch.workload import at_positions

WORKER = Path(__file__).parent / "fake_worker.py"
ROOT = Path(__file__).parents[2]

FASTER = {"in_flight": {"8": 0.9}, "stocked": {"10": 0.95}, "compute_warps": {"4": 1.3}}
"""in_flight 8 and stocked 10 are better, compute_warps 4 is worse, everything else is the same."""


SPACE = Space(
    tuple(
        Knob(name, values, default, "what a knob of this name changes")
        for name, values, default in (
            ("compute_warps", (4, 6, 8, 10, 12, 14), 8),
            ("ring_stages", (0, 4, 6, 8, 12), 0),
            ("in_flight", (2, 3, 4, 5, 6, 8, 10, 12), 5),
            ("stocked", (2, 3, 4, 6, 8, 10, 12), 6),
            ("down_split", (0, 1, 2, 3, 4, 6, 8), 0),
            ("max_splits", (1, 2, 4, 6, 8, 12, 16, 24, 32), 16),
        )
    )
)
"""A space of its own: the lowering's defaults may change."""


def subject(mode: Any = "measured", model: str = "/models/toy") -> Subject:
    """A subject that nobody opens."""
    target = asdict(lookup("h200").as_target())
    points = at_positions([0, 64], 128).to_json()
    return Subject(model, 7, "digest", target, 128, "fp16", points, mode, "kernels", SPACE.default)


def write_script(folder: Path, **script: Any) -> Path:
    """What the fake worker does."""
    folder.mkdir(exist_ok=True)
    path = folder / "script.json"
    path.write_text(json.dumps({"latency": FASTER, "log": str(folder / "log.jsonl"), **script}))
    return path


def fleet(folder: Path, script: Path, **options: Any) -> LocalFleet:
    """Workers that follow the script."""
    run = f"import sys, runpy; sys.path.insert(0, {str(ROOT)!r}); runpy.run_path({str(WORKER)!r}, run_name='__main__')"
    return LocalFleet(folder / "scratch", (sys.executable, "-c", run, str(script)), **options)


def settings(**changes: Any) -> Settings:
    """A short night."""
    base: dict[str, Any] = {
        "trials": 12, "aa_loads": 12, "aa_window": 6, "headline_loads": 6, "confirm_loads": 16, "min_free_bytes": 0,
        "proposer": "coordinate",
    }  # fmt: skip
    return Settings(**{**base, **changes})


def supervisor(
    folder: Path,
    script: Path,
    night: Settings | None = None,
    say: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Supervisor:
    """A supervisor on the folder's study."""
    study = Study(folder / "study")
    return Supervisor(study, subject(), night or settings(), fleet(folder, script, **options), say, space=SPACE)


def logged(folder: Path, method: str) -> list[dict[str, int]]:
    """The candidates for which a worker executed a method."""
    lines = (folder / "log.jsonl").read_text().splitlines()
    return [entry[1] for entry in map(json.loads, lines) if entry[0] == method]
