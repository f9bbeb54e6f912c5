"""scripts/nightly over an amk that only waits: it goes on or begins, stops it with one signal, and keeps the page."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

NIGHTLY = Path(__file__).parents[2] / "scripts" / "nightly"
STUB = """#!{python}
import pathlib, signal, sys, time
_, command, folder = sys.argv[1:4]
log = pathlib.Path({log!r})
log.open("a").write(" ".join(sys.argv[2:]) + "\\n")
if command == "resume":
    sys.exit({resume})
if command == "run":
    seen = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    log.open("a").write("ready\\n")
    until = time.monotonic() + {seconds}
    while time.monotonic() < until and not seen:
        time.sleep(0.01)
    time.sleep(0.3)  # the measurement in progress; a second signal would be seen
    log.open("a").write(f"signals {{len(seen)}}\\n")
    sys.exit(130 if seen else 10)
"""


def start(folder: Path, resume: int = 2, seconds: float = 30.0) -> subprocess.Popen[str]:
    stub = folder / "amk"
    stub.write_text(STUB.format(python=sys.executable, log=str(folder / "log"), resume=resume, seconds=seconds))
    stub.chmod(0o755)
    search = folder / "search" / "measured"
    search.mkdir(parents=True)
    (search / "report.html").write_text("page")
    command = [str(NIGHTLY), str(folder / "search"), "1", "model", "--max-seq", "64"]
    return subprocess.Popen(command, env={**os.environ, "AMK": str(stub)}, stdout=subprocess.PIPE, text=True)


def log(folder: Path) -> list[str]:
    path = folder / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_a_stop_reaches_the_search_once_and_its_exit_code_comes_back(tmp_path: Path) -> None:
    night = start(tmp_path)
    until = time.monotonic() + 20
    while "ready" not in log(tmp_path) and time.monotonic() < until:
        time.sleep(0.02)
    night.send_signal(signal.SIGTERM)
    assert night.wait(20) == 130
    assert "signals 1" in log(tmp_path)
    assert log(tmp_path)[-1].startswith("status")


@pytest.mark.parametrize(("resume", "code", "ran"), [(0, 0, False), (20, 20, False), (2, 10, True)])
def test_it_goes_on_with_a_night_or_begins_one(resume: int, code: int, ran: bool, tmp_path: Path) -> None:
    (tmp_path / "search" / "x").mkdir(parents=True)
    (tmp_path / "search" / "x" / "journal.sqlite").touch()
    assert start(tmp_path, resume, seconds=0).wait(20) == code
    commands = [line for line in log(tmp_path) if line.startswith(("resume", "run", "status"))]
    assert [line.split()[0] for line in commands] == (["resume", "run", "status"] if ran else ["resume", "status"])
    assert "--model model" in commands[0]
    if ran:
        assert commands[1].endswith("--hours 24 --mode measured --max-seq 64")
    pages = list((tmp_path / "search" / "measured").glob("report-*.html"))
    assert len(pages) == 1
