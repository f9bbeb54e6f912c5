"""A worker that hangs, crashes, floods, fills the disk or loses its supervisor leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autoresearch.link import RefusedError, WorkerLostError, parse_answer
from autoresearch.process import folder_bytes, kill_strays, start_time
from tests.autoresearch.helpers import ROOT, fleet, write_script


def alive_in_session(pid: int) -> list[int]:
    """Processes of the session that a worker led."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == pid and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.02)
    return condition()


def call(folder: Path, method: str, deadline: float = 5.0, **script: Any) -> Any:
    """One request to a worker with this script; (its pid, what it answered or raised)."""
    with fleet(folder, write_script(folder, **script), disk_limit=4 << 20).worker() as worker:
        pid = worker.identity["pid"]
        try:
            return pid, worker.call(method, {}, deadline)
        except (WorkerLostError, RefusedError) as error:
            return pid, error


def test_an_answer(tmp_path: Path) -> None:
    pid, answer = call(tmp_path, "floors")
    assert answer == {"floors": [0.01, 0.01]}
    assert not alive_in_session(pid)
    assert not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize(
    ("fault", "how", "words"),
    [
        ("hang", "deadline", "no answer within 0.6 s"),
        ("crash", "crash", "signal 11"),
        ("nonsense", "nonsense", "no JSON at all"),
        ("endless", "nonsense", "more than"),
        ("disk", "disk", "scratch folder"),
    ],
)
def test_faults_end_the_worker_and_all_it_started(fault: str, how: str, words: str, tmp_path: Path) -> None:
    deadline = 0.6 if fault == "hang" else 20
    pid, error = call(tmp_path, "smoke", deadline, faults={"smoke": fault})
    assert isinstance(error, WorkerLostError)
    assert error.how == how
    assert words in error.detail
    assert not alive_in_session(pid)
    assert not list((tmp_path / "scratch").iterdir())


def test_refusals_leave_the_worker_alive(tmp_path: Path) -> None:
    with fleet(tmp_path, write_script(tmp_path, faults={"validate": "refuse"})).worker() as worker:
        with pytest.raises(RefusedError, match="a race") as refusal:
            worker.call("validate", {}, 5)
        assert (refusal.value.rung, refusal.value.witness) == ("validate", "task 1 and task 2")
        assert worker.call("floors", {}, 5)


NO_ANSWERS = [
    b"",
    b"{}",
    b"[]",
    b'{"id": 2, "ok": true, "result": {}}',
    b'{"id": 1, "ok": 1, "result": {}}',
    b'{"id": 1, "ok": true}',
    b'{"id": 1, "ok": true, "result": {"x": NaN}}',
    b'{"id": 1, "ok": true, "result": 3}',
    b"[" * 100_000,
    b"\xff\xfe",
]


@pytest.mark.parametrize("line", NO_ANSWERS)
def test_what_is_no_answer(line: bytes) -> None:
    with pytest.raises(WorkerLostError, match="nonsense"):
        parse_answer(line, 1)


def test_secrets_do_not_reach_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1234")
    monkeypatch.setenv("HF_TOKEN", "hf-1234")
    with fleet(tmp_path, write_script(tmp_path)).worker() as worker:
        file = Path(f"/proc/{worker.identity['pid']}/environ")
        assert eventually(lambda: file.read_bytes() != b"")  # it is empty until the worker's exec is through
        environment = file.read_bytes()
    assert b"-1234" not in environment
    assert b"TMPDIR=" + str(tmp_path).encode() in environment


def test_workers_die_with_a_killed_supervisor(tmp_path: Path) -> None:
    script = write_script(tmp_path, faults={"smoke": "hang"})
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path; from tests.autoresearch.helpers import fleet\n"
        f"with fleet(Path({str(tmp_path)!r}), Path({str(script)!r})).worker() as w:\n"
        "    print(w.identity['pid'], flush=True); w.call('floors', {}, 20); w.call('smoke', {}, 100)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        assert eventually(lambda: len(alive_in_session(pid)) == 2)  # the worker, and the child that it started
        identity = {"pid": pid, "start": start_time(pid)}
        supervisor.kill()
    assert eventually(lambda: pid not in alive_in_session(pid))
    # The child of a hung worker is what the next supervisor finds by the journal.
    kill_strays({pid: identity})
    for child in alive_in_session(pid):
        os.kill(child, signal.SIGKILL)


def test_strays_are_killed_only_if_they_are_the_same_process(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "100"], start_new_session=True) as stray:
        assert kill_strays({stray.pid: {"pid": stray.pid, "start": start_time(stray.pid) - 1}}) == 0
        assert stray.poll() is None
        assert kill_strays({stray.pid: {"pid": stray.pid, "start": start_time(stray.pid)}}) == 1
        assert stray.wait(5) == -signal.SIGKILL
    assert kill_strays({stray.pid: {"pid": stray.pid, "start": 5}, -1: {"pid": -1, "start": 0}}) == 0


def test_folder_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(bytes(100))
    assert folder_bytes(tmp_path) == 100
    assert json.dumps(folder_bytes(tmp_path / "none")) == "0"
