"""The worker process: answers requests about one candidate until its stdin closes, then ends.

It dies with the supervisor (PR_SET_PDEATHSIG, and the end of its stdin), writes no core, and gives its stdout to the
protocol alone: whatever a library prints goes to the log.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from amk.errors import AmkError
from autoresearch.link import RefusedError

PR_SET_PDEATHSIG = 1
FILE_LIMIT = 4 << 30
Methods = Callable[[str, dict[str, Any]], dict[str, Any]]


def die_with(parent: int) -> None:
    """Be killed when the thread that started this process ends; at once if it has ended already."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def limit_files() -> None:
    """No core dumps; no file beyond FILE_LIMIT."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    limit = FILE_LIMIT if hard == resource.RLIM_INFINITY else min(FILE_LIMIT, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))


def protocol_stream() -> IO[str]:
    """The real stdout as a private stream; everything else that writes to stdout reaches stderr."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def serve(methods: Methods) -> None:
    """Answer requests with `methods(method, params)` until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent", type=int, required=True)
    parent = parser.parse_known_args()[0].parent
    die_with(parent)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # asks the supervisor to stop, which ends its workers itself
    limit_files()
    out = protocol_stream()
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        answer = {"id": request["id"], **_answer(methods, request)}
        out.write(json.dumps(answer) + "\n")
        out.flush()


def _read(requests: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _answer(methods: Methods, request: dict[str, Any]) -> dict[str, Any]:
    method = request["method"]
    try:
        return {"ok": True, "result": methods(method, request["params"])}
    except RefusedError as refusal:
        return {"ok": False, "rung": refusal.rung, "reason": refusal.reason, "witness": refusal.witness}
    except AmkError as error:
        return {"ok": False, "rung": method, "reason": str(error), "witness": type(error).__name__}


def main() -> None:
    """Entry point of `python -m autoresearch.worker`."""
    from autoresearch.rungs import Rungs

    serve(Rungs().call)


if __name__ == "__main__":
    main()
