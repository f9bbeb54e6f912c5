"""Workers as processes of this host: own session, deadline on every answer, disk limit, killed as a group."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autoresearch.link import MAX_LINE, WorkerLostError, parse_answer

COMMAND = (sys.executable, "-m", "autoresearch.worker")
DISK_LIMIT = 2 << 30
"""Bytes that a worker may leave in its scratch folder, its log included."""

_CHECK_SECONDS = 0.25
_END_SECONDS = 1.0
_SECRETS = ("KEY", "TOKEN", "SECRET", "PASSWORD")


class WorkerProcess:
    """A worker on this host. Its scratch folder (also its TMPDIR, with its log) goes with it."""

    def __init__(self, command: Sequence[str], scratch_root: Path, disk_limit: int = DISK_LIMIT) -> None:
        scratch_root.mkdir(parents=True, exist_ok=True)
        self.scratch = Path(tempfile.mkdtemp(prefix="worker-", dir=scratch_root))
        self._disk_limit = disk_limit
        self._log = self.scratch / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--parent", str(os.getpid())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0, start_new_session=True,
                env=_environment(self.scratch),
            )  # fmt: skip
        self._requests, self._buffer, self._killed = 0, bytearray(), False
        self._checked = 0.0

    @property
    def identity(self) -> dict[str, Any]:
        """Pid and start time, which together name a process for good."""
        return {"pid": self._process.pid, "start": start_time(self._process.pid)}

    def call(self, method: str, params: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Ask the worker. Raises RefusedError; raises WorkerLostError after killing the process group."""
        self._requests += 1
        request = json.dumps({"id": self._requests, "method": method, "params": params}).encode() + b"\n"
        try:
            self._send(request)
            return parse_answer(self._line(time.monotonic() + deadline, deadline), self._requests)
        except WorkerLostError:
            self._kill()
            raise

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            view = memoryview(data)
            while view:
                view = view[self._process.stdin.write(view) :]
        except (BrokenPipeError, OSError):
            raise WorkerLostError("crash", self._epitaph()) from None

    def _line(self, until: float, deadline: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            complete = b"\n" in self._buffer
            while not complete:
                left = until - time.monotonic()
                if left <= 0:
                    raise WorkerLostError("deadline", f"no answer within {deadline:g} s")
                if selector.select(min(left, _CHECK_SECONDS)):
                    complete = self._read()
                if time.monotonic() - self._checked > _CHECK_SECONDS:
                    self._check_disk()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return bytes(line)

    def _read(self) -> bool:
        """Take what there is; whether a line ends in it."""
        assert self._process.stdout is not None
        chunk = os.read(self._process.stdout.fileno(), 1 << 16)
        if not chunk:
            raise WorkerLostError("crash", self._epitaph())
        self._buffer += chunk
        if len(self._buffer) > MAX_LINE:
            raise WorkerLostError("nonsense", f"an answer of more than {MAX_LINE} bytes")
        return b"\n" in chunk

    def _check_disk(self) -> None:
        used, self._checked = folder_bytes(self.scratch), time.monotonic()
        if used > self._disk_limit:
            raise WorkerLostError("disk", f"{used} bytes in its scratch folder; at most {self._disk_limit}")

    def _epitaph(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        code = self._process.poll()
        how = "still running" if code is None else f"signal {-code}" if code < 0 else f"exit status {code}"
        tail = self._log.read_bytes()[-600:].decode(errors="replace").strip() if self._log.exists() else ""
        return f"{how}; log ends: {tail}" if tail else how

    def _kill(self) -> None:
        """Once only: later the number may be somebody else's."""
        if self._killed:
            return
        self._killed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        _await_end(self._process.pid)

    def close(self) -> None:
        """Kill the group and remove the scratch folder. A worker keeps nothing, so there is nothing to wait for."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


class LocalFleet:
    """Workers on this host, `size` at once, of which one at a time has the GPU."""

    size = 1
    one_device = True

    def __init__(
        self, scratch_root: Path, command: Sequence[str] = COMMAND, disk_limit: int = DISK_LIMIT, size: int = 1
    ) -> None:
        self._scratch_root, self._command, self._disk_limit, self.size = scratch_root, command, disk_limit, size

    @contextmanager
    def worker(self) -> Iterator[WorkerProcess]:
        """A fresh worker process."""
        worker = WorkerProcess(self._command, self._scratch_root, self._disk_limit)
        try:
            yield worker
        finally:
            worker.close()


def _await_end(group: int) -> None:
    """Wait until the last process of a killed group is gone: the system takes a moment to end what it killed."""
    until = time.monotonic() + _END_SECONDS
    with contextlib.suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(0.002)


def _environment(scratch: Path) -> dict[str, str]:
    """This process's environment without its secrets."""
    kept = {name: value for name, value in os.environ.items() if not any(word in name.upper() for word in _SECRETS)}
    return {**kept, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}


def folder_bytes(folder: Path) -> int:
    """Bytes of the files in a folder; files that vanish meanwhile count as nothing."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118
    return total


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if there is none, or no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def kill_strays(workers: Mapping[int, Mapping[str, Any]]) -> int:
    """Kill the groups of workers that a supervisor left behind; how many there were."""
    killed = 0
    for pid, identity in workers.items():
        if pid > 0 and identity.get("start") and start_time(pid) == identity["start"]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed += 1
    return killed
