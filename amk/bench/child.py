"""Work in a process of its own: torch must not share the process, the GPU memory or the timing of the kernel.

A child reads one JSON request on stdin and prints one JSON object a line, as results appear; whatever it printed
before it failed or ran out of time counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any

Rows = list[dict[str, Any]]


def run_child(module: str, request: dict[str, Any], timeout_seconds: float) -> tuple[Rows, str | None]:
    """(the rows that `python -m module` printed, why it did not finish or None)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=out, stderr=err)
        problem = _wait(child, json.dumps(request).encode(), timeout_seconds)
        out.seek(0)
        err.seek(0)
        if problem is None and child.returncode != 0:
            lines = err.read().decode(errors="replace").strip().splitlines()
            problem = lines[-1] if lines else f"exit code {child.returncode}"
        return parse_rows(out.read().decode(errors="replace")), problem


def _wait(child: subprocess.Popen[bytes], request: bytes, timeout_seconds: float) -> str | None:
    try:
        child.communicate(request, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return f"not finished after {timeout_seconds:.0f} s"
    except BaseException:
        child.kill()
        child.wait()
        raise
    return None


def parse_rows(text: str) -> Rows:
    """The lines that are JSON objects; libraries print other things too."""
    rows: Rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def read_request() -> dict[str, Any]:
    """The request, in the child."""
    request: dict[str, Any] = json.loads(sys.stdin.read())
    return request


def emit(**row: Any) -> None:
    """Hand a row to the parent, in the child."""
    print(json.dumps(row), flush=True)
