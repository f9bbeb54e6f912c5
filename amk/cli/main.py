"""The `amk` command: its options, and the one place where an exception becomes a line and an exit code."""

from __future__ import annotations

import errno
import io
import sys
from collections.abc import Sequence
from typing import Any

import click

import amk
from amk.cli.bench import bench
from amk.cli.build import build
from amk.cli.doctor import doctor
from amk.cli.generate import generate
from amk.cli.inspect import inspect
from amk.cli.options import Settings, debug_option
from amk.cli.research import research
from amk.cli.validate import validate
from amk.cli.verify import verify
from amk.errors import AmkError

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""


class AmkGroup(click.Group):
    """A click group that reports every failure as one line on stderr: `amk: what, which value, what to do`."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run the command line and exit. A traceback appears only with --debug."""
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **extra)
        settings = Settings()
        try:
            outcome = super().main(args, standalone_mode=False, obj=settings, **extra)
        except Exception as error:
            if settings.debug:
                raise
            sys.exit(report(error))
        sys.exit(outcome if isinstance(outcome, int) else 0)


def report(error: Exception) -> int:
    """Print an error as one line and return its exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    message, code = explain(error)
    if message:
        click.echo(f"amk: {' '.join(message.split())}", err=True)
    return code


def explain(error: Exception) -> tuple[str, int]:
    """The message and exit code of an error; no message for Ctrl-C, which needs none."""
    if isinstance(error, AmkError):
        return str(error), error.exit_code
    if isinstance(error, click.UsageError):
        where = f"; see {error.ctx.command_path} --help" if error.ctx else ""
        return error.format_message().rstrip(".") + where, error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, click.Abort):
        return "", INTERRUPTED
    if isinstance(error, OSError):
        return _explain_os(error), 1
    return f"internal error, {type(error).__name__}: {error}; --debug shows where", 1


def _explain_os(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    hint = "; free some space or write elsewhere" if error.errno == errno.ENOSPC else ""
    return f"{where}{error.strerror or error}{hint}"


@click.group(cls=AmkGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(amk.__version__, prog_name="amk", message="%(prog)s %(version)s")
@debug_option
def cli() -> None:
    """Turn a Llama-family checkpoint into one persistent cooperative CUDA kernel, and decode with it.

    \b
      amk build MODEL     make the kernel: a small folder beside the checkpoint
      amk generate DIR    decode greedily with it, on the GPU or the CPU
    """


for command in (build, generate, inspect, validate, verify, bench, research, doctor):
    cli.add_command(command)


def main() -> None:
    """Entry point of the console script."""
    for stream in (sys.stdout, sys.stderr):
        # A token that the locale cannot show must not end a decode.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    cli.main(prog_name="amk")
