"""Workers on a Ray cluster: the same worker process, started by an actor on the host that has the GPU."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amk.errors import UsageError
from autoresearch.link import RefusedError, WorkerLostError
from autoresearch.process import COMMAND, DISK_LIMIT, WorkerProcess

GRACE_SECONDS = 60.0
"""Beyond a request's deadline, until the actor itself counts as lost."""


class WorkerHost:
    """The actor: holds one worker process, and turns what can happen into plain tuples."""

    def __init__(self, command: Sequence[str], disk_limit: int) -> None:
        self._worker = WorkerProcess(command, Path(tempfile.gettempdir()) / "amk-research", disk_limit)

    def call(self, method: str, params: dict[str, Any], deadline: float) -> tuple[str, Any]:
        """("ok", result), ("refused", (rung, reason, witness)) or ("lost", (how, detail))."""
        try:
            return "ok", self._worker.call(method, params, deadline)
        except RefusedError as refusal:
            return "refused", (refusal.rung, refusal.reason, refusal.witness)
        except WorkerLostError as lost:
            return "lost", (lost.how, lost.detail)

    def close(self) -> None:
        """End the worker process."""
        self._worker.close()


class RayWorker:
    """A worker behind an actor."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor = ray, actor
        self._closed = False

    @property
    def identity(self) -> dict[str, Any]:
        """Not a process of this host: Ray ends it with its actor."""
        return {"pid": -(id(self) % (1 << 31)) - 1, "start": 0}

    def call(self, method: str, params: dict[str, Any], deadline: float) -> dict[str, Any]:
        """Ask through the actor. Raises RefusedError and WorkerLostError."""
        try:
            kind, answer = self._ray.get(
                self._actor.call.remote(method, params, deadline), timeout=deadline + GRACE_SECONDS
            )
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError("crash", f"Ray lost the worker's actor: {type(error).__name__}") from None
        if kind == "refused":
            raise RefusedError(*answer)
        if kind == "lost":
            raise WorkerLostError(*answer)
        result: dict[str, Any] = answer
        return result

    def close(self) -> None:
        """End the process, then the actor."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.close.remote(), timeout=GRACE_SECONDS)
        self._ray.kill(self._actor)


class RayFleet:
    """`size` workers at once, each with a CPU and `gpus` GPUs of the cluster at `address` (None: a local one)."""

    one_device = False

    def __init__(
        self,
        size: int,
        address: str | None,
        gpus: float,
        command: Sequence[str] = COMMAND,
        disk_limit: int = DISK_LIMIT,
    ) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError("--ray needs Ray; pip install 'amk[ray]'") from None
        self.size, self._ray, self._command, self._disk_limit = size, ray, command, disk_limit
        if not ray.is_initialized():
            local: dict[str, Any] = {"num_cpus": size, "include_dashboard": False} if address is None else {}
            ray.init(address=address, log_to_driver=False, configure_logging=False, **local)
        self._actor = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=0)(WorkerHost)

    @contextmanager
    def worker(self) -> Iterator[RayWorker]:
        """A fresh worker wherever the cluster has room."""
        worker = RayWorker(self._ray, self._actor.remote(self._command, self._disk_limit))
        try:
            yield worker
        finally:
            worker.close()

    def close(self) -> None:
        """Leave the cluster; end it if it is a local one."""
        self._ray.shutdown()
