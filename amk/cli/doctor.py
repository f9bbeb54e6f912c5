"""`amk doctor`: what this machine can do, and how to get what is missing."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from amk.cli.options import debug_option, json_option
from amk.doctor import Check, cpu_path_works, examine
from amk.progress import ConsoleProgress

FAILED = 1


@click.command()
@json_option
@debug_option
def doctor(as_json: bool) -> None:
    """Say what this machine can do and what is missing, with the fix. Exits with 0 if the CPU path works."""
    with ConsoleProgress().step("Examining this machine"):
        checks = list(examine())
    works = cpu_path_works(checks)
    if as_json:
        click.echo(json.dumps({"cpu_path": works, "gpu_path": gpu_path_works(checks), "checks": _rows(checks)}))
    else:
        _print(checks)
        click.echo(verdict(checks))
    if not works:
        raise click.exceptions.Exit(FAILED)


def gpu_path_works(checks: list[Check]) -> bool:
    """Whether this machine can also run the kernel."""
    return all(check.ok for check in checks)


def verdict(checks: list[Check]) -> str:
    """The last line: what works."""
    if gpu_path_works(checks):
        return "Everything works: amk builds here and decodes on the GPU."
    if cpu_path_works(checks):
        return "amk builds here (name a GPU with --gpu) and decodes on the CPU; no GPU can be used."
    missing = ", ".join(check.name for check in checks if check.needed and not check.ok)
    return f"amk does not work here yet; fix: {missing}"


def _rows(checks: list[Check]) -> list[dict[str, object]]:
    return [asdict(check) for check in checks]


def _print(checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        status = click.style("ok     ", fg="green") if check.ok else click.style("missing", fg="yellow")
        fix = f"; {check.fix}" if check.fix else ""
        click.echo(f"{status}  {check.name:{width}}  {check.found}{fix}")
