"""Options of the group, and how errors become a line and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import amk
from amk import errors
from tests.cli.conftest import FakeSession, Run

ERRORS = [
    (errors.UsageError, 2),
    (errors.UnsupportedModelError, 3),
    (errors.RejectedProgramError, 4),
    (errors.DeviceError, 5),
    (errors.ArtifactError, 6),
]


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"amk {amk.__version__}\n"


def test_no_command_prints_the_help(run: Run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "build" in result.output
    assert "generate" in result.output


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_an_amk_error_is_one_line(run: Run, session: FakeSession, error: type[errors.AmkError], code: int) -> None:
    session.script = [error("field 'x' is 3;\n use 4")]
    result = run("generate", "d", "--prompt", "p")
    assert result.exit_code == code
    assert result.stderr.splitlines()[-1] == "amk: field 'x' is 3; use 4"
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("where", ["before", "after"])
def test_debug_lets_the_exception_through(run: Run, session: FakeSession, where: str) -> None:
    session.script = [errors.DeviceError("no")]
    args = ["generate", "d", "--prompt", "p"]
    result = run(*(["--debug", *args] if where == "before" else [*args, "--debug"]))
    assert isinstance(result.exception, errors.DeviceError)


def test_a_bug_is_one_line_too(run: Run, session: FakeSession) -> None:
    session.script = [ValueError("oops")]
    result = run("generate", "d", "--prompt", "p")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "amk: internal error, ValueError: oops; --debug shows where"


def test_a_full_disk_says_so(run: Run, session: FakeSession) -> None:
    session.script = [OSError(errno.ENOSPC, "No space left on device", "/out/x")]
    result = run("generate", "d", "--prompt", "p")
    assert result.stderr.splitlines()[-1].startswith("amk: /out/x: No space left on device; free some space")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("bogus",), "amk: No such command 'bogus'; see amk --help"),
        (("build",), "amk: Missing argument 'MODEL'; see amk build --help"),
        (("generate", "d", "--max-new-tokens", "0"), "amk: Invalid value for '--max-new-tokens'"),
        (("build", "m", "--kv-dtype", "fp8"), "amk: Invalid value for '--kv-dtype'"),
    ],
)
def test_wrong_usage_is_one_line(run: Run, args: tuple[str, ...], line: str) -> None:
    result = run(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


def test_version_and_help_need_no_heavy_import() -> None:
    code = (
        "import sys, amk.cli.main\n"
        "heavy = {'torch', 'transformers', 'z3', 'cuda.bindings', 'pynvml', 'cutlass_library', 'gguf'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_closed_pipe_is_silent() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "amk", "--help"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.stderr == ""


def test_ctrl_c_exits_with_130() -> None:
    script = (
        "import signal, time, amk\nfrom amk.cli.main import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs ignore it
        "def load(*_, **__):\n    print('loading', flush=True)\n    time.sleep(60)\n"
        "amk.load = load\nmain()\n"
    )
    command = [sys.executable, "-c", script, "generate", "d", "--prompt", "p"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, cwd=Path(amk.__file__).parent.parent, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in stderr


def test_unknown_names_of_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'amk' has no attribute 'bild'"):
        amk.bild  # noqa: B018
    assert {"build", "load", "Session"} <= set(dir(amk))
