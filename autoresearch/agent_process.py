"""An agent as a process: it sends requests as JSON lines on its stdout and reads the answers on its stdin.

-> {"id": 1, "method": "submit", "params": {"candidate": {"knobs": {"in_flight": 4}}, "why": "fewer in flight"}}
<- {"id": 1, "result": {"trial": 7, "verdict": "kept", "factor_over_incumbent": 1.02, ..}}
<- {"id": 1, "error": "in_flight = 99 is not one of .."}
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autoresearch.desk import Desk
from autoresearch.errors import ProposalError

MAX_LINE = 1 << 26
MAX_ERRORS = 100
"""Requests in a row that are none: then the agent is broken."""


def serve_process(command: Sequence[str], desk: Desk, over: Callable[[], str | None]) -> str:
    """Answer the agent until it ends, is broken, or `over` gives a reason; the reason."""
    process = subprocess.Popen(
        list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
    )
    errors = 0
    try:
        for line in _lines(process, over):
            answer = answer_line(line, desk)
            errors = errors + 1 if "error" in answer else 0
            assert process.stdin is not None
            process.stdin.write(json.dumps(answer).encode() + b"\n")
            if errors >= MAX_ERRORS:
                return f"the agent sent {errors} requests in a row that are none"
    except (BrokenPipeError, ConnectionError):
        pass
    finally:
        _end(process)
    return over() or "the agent ended"


def _lines(process: subprocess.Popen[bytes], over: Callable[[], str | None]) -> Iterator[bytes]:
    assert process.stdout is not None
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while over() is None:
            if not selector.select(0.5):
                continue
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            buffer += chunk
            if not chunk or len(buffer) > MAX_LINE:
                return
            *lines, buffer = buffer.split(b"\n")
            yield from (line for line in lines if line.strip())


def answer_line(line: bytes, desk: Desk) -> dict[str, Any]:
    """The answer to one request."""
    number: Any = None
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise ProposalError(f"a request is a JSON object, not {type(request).__name__}")
        number = request.get("id")
        params = request.get("params", {})
        if not isinstance(params, dict):
            raise ProposalError(f"params is a JSON object, not {type(params).__name__}")
        return {"id": number, "result": desk.call(str(request.get("method")), params)}
    except (ProposalError, ValueError, RecursionError) as error:
        return {"id": number, "error": str(error)[:2000]}


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
