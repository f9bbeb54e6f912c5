"""`amk research`: the unattended search for faster schedules. Every command takes the same DIR first."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from amk.cli.options import debug_option, json_option
from amk.progress import ConsoleProgress

if TYPE_CHECKING:
    from autoresearch.settings import Settings
    from autoresearch.study import Study

FOLDER = click.Path(path_type=Path)


@click.group()
def research() -> None:
    """Search for a faster schedule overnight; journal and report live under DIR.

    \b
    Exit codes of run and resume: 0 improved, 10 nothing better, 20 infrastructure failure, 130 stopped.
    """


def directory(command: Callable[..., Any]) -> Callable[..., Any]:
    """DIR: an artifact folder, or the research folder of an earlier run."""
    command = click.argument("place", metavar="DIR", type=FOLDER)(command)
    command = click.option("--mode", type=click.Choice(["measured", "predicted"]), help="Which search under DIR.")(
        command
    )
    return debug_option(command)


_SUBJECT = (
    click.argument("place", metavar="DIR|MODEL"),
    click.option("--gpu", default="auto", show_default=True, metavar="NAME|auto", help="GPU to search for."),
    click.option("--max-seq", type=click.IntRange(min=1), metavar="N", help="Longest sequence [default: the model's]."),
    click.option("--kv-dtype", type=click.Choice(["fp16", "bf16", "fp32"]), default="fp16", show_default=True),
    click.option("--random-weights", type=click.IntRange(min=0), metavar="SEED", help="Weights from a seed."),
    click.option("--workload", type=FOLDER, metavar="FILE", help="Weighted positions or prompt and output lengths."),
    click.option("--position", "positions", type=click.IntRange(min=0), multiple=True, metavar="P",
                 help="Optimise at this position (repeatable), instead of --workload."),
    click.option("--mode", type=click.Choice(["auto", "measured", "predicted"]), default="auto", show_default=True,
                 help="Time on the GPU, or predict with the cost model."),
    click.option("--out", type=FOLDER, metavar="DIR", help="Research folder of a MODEL [default: by model and GPU]."),
)  # fmt: skip

_NIGHT = (
    click.option("--hours", type=click.FloatRange(min=0, min_open=True), metavar="H", help="Wall-clock budget."),
    click.option("--trials", type=click.IntRange(min=0), metavar="N", help="Budget of candidates."),
    click.option("--gpu-seconds", type=click.FloatRange(min=0, min_open=True), metavar="S",
                 help="Budget of seconds in which a worker holds the GPU."),
    click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="S"),
    click.option("--aa-loads", type=click.IntRange(min=0), default=24, show_default=True,
                 help="Loads of the A/A panel."),
    click.option("--pairs-per-load", type=click.IntRange(min=1), default=2, show_default=True,
                 help="Pairs until both sides are loaded anew."),
    click.option("--plateau", type=click.IntRange(min=1), default=80, show_default=True,
                 help="End after this many trials without an improvement."),
    click.option("--min-gain", type=click.FloatRange(0, 0.5), default=0.005, show_default=True,
                 help="Smallest gain worth keeping, as a fraction."),
    click.option("--alpha", type=click.FloatRange(0, 0.5, min_open=True), default=0.05, show_default=True,
                 help="Chance that anything kept in the whole search is no gain."),
    click.option("--ahead", type=click.IntRange(min=1), metavar="N",
                 help="Candidates on their way at once; one has the GPU [default: half the cores, at most 4]."),
    click.option("--learn-from", type=FOLDER, multiple=True, metavar="DIR", help="Other searches to learn from."),
)  # fmt: skip

NIGHTLY = (
    "hours", "trials", "gpu_seconds", "seed", "aa_loads", "pairs_per_load", "plateau", "min_gain", "alpha",
)  # fmt: skip
"""Options of _NIGHT that are settings of the same name and default."""

_PROPOSER = (
    click.option("--proposer", default="mixed", show_default=True, metavar="NAME|CMD",
                 help="mixed, random, coordinate, evolution, mcts, optuna, llm, or a command that speaks JSON lines."),
    click.option("--llm-url", metavar="URL", help="OpenAI-compatible endpoint, up to before /chat/completions."),
    click.option("--llm-model", metavar="NAME"),
    click.option("--llm-key-env", default="OPENAI_API_KEY", show_default=True, metavar="VARIABLE",
                 help="Environment variable that holds the key."),
    click.option("--llm-tokens", type=click.IntRange(min=1), metavar="N", help="Token budget."),
    click.option("--llm-money", type=click.FloatRange(min=0), metavar="M", help="Money budget, by the two prices."),
    click.option("--llm-price-in", type=float, default=0.0, metavar="P", help="Per million prompt tokens."),
    click.option("--llm-price-out", type=float, default=0.0, metavar="P", help="Per million completion tokens."),
    click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Workers at once (Ray)."),
    click.option("--ray", metavar="ADDRESS|local", help="Run the workers on a Ray cluster, one GPU each."),
)  # fmt: skip


def options(
    *groups: tuple[Callable[..., Any], ...], debug: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Several options at once, in the order in which they stand."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([option for group in groups for option in group]):
            command = option(command)
        return debug_option(command) if debug else command

    return decorate


@research.command()
@options(_SUBJECT, _NIGHT, _PROPOSER)
def run(**given: Any) -> int:
    """Run a night on DIR (an artifact or an earlier search) or on MODEL, until a budget is used up."""
    from autoresearch.session import make_session, open_study

    settings = _settings(given)
    endpoint = _endpoint(given) if settings.proposer == "llm" else None
    with ConsoleProgress().step("Reading the checkpoint"):
        study, subject = open_study(_request(given))
    click.echo(f"{study.folder}: {subject.mode} search", err=True)
    session = make_session(study, subject, settings, click.echo, endpoint, _fleet(given, study, settings))
    outcome = session.run()
    return _ended(outcome.exit_code, outcome.reason)


@research.command()
@directory
@options(_PROPOSER[1:], debug=False)
@click.option("--model", type=FOLDER, metavar="MODEL", help="Where the model lies now, if it was moved.")
def resume(place: Path, mode: Any, model: Path | None, **given: Any) -> int:
    """Go on with the last night of DIR after a crash or a stop; nothing is lost or measured twice."""
    from autoresearch.session import check_resumable, last_settings, make_session, moved
    from autoresearch.study import find_study

    study = find_study(place, mode)
    settings = last_settings(study)
    check_resumable(study)
    endpoint = _endpoint(given) if settings.proposer == "llm" else None
    subject = moved(study.subject, model)
    session = make_session(study, subject, settings, click.echo, endpoint, _fleet(given, study, settings))
    outcome = session.run(resume=True)
    return _ended(outcome.exit_code, outcome.reason)


@research.command()
@directory
@json_option
def status(place: Path, mode: Any, as_json: bool) -> None:
    """Say how the search in DIR stands."""
    from autoresearch.report import collect, status_lines
    from autoresearch.space import knob_space
    from autoresearch.study import find_study

    study = find_study(place, mode)
    facts = collect(study.refresh(), study.subject, knob_space())
    if as_json:
        click.echo(json.dumps(facts))
        return
    for line in status_lines(facts):
        click.echo(line)


@research.command()
@directory
@click.option("--out", type=FOLDER, metavar="FILE", help="Where to write [default: report.html under DIR].")
def report(place: Path, mode: Any, out: Path | None) -> None:
    """Write the HTML report of the search in DIR."""
    from autoresearch.report import write_report
    from autoresearch.study import find_study

    study = find_study(place, mode)
    click.echo(str(write_report(study, study.subject, out)))


@research.command()
@directory
@click.option("--export", "out", type=FOLDER, metavar="OUT", help="Build the best schedule as an artifact at OUT.")
@click.option("--model", type=FOLDER, metavar="MODEL", help="Where the model lies now, if it was moved.")
@json_option
def best(place: Path, mode: Any, out: Path | None, model: Path | None, as_json: bool) -> None:
    """Print the best schedule of DIR with its provenance; with --export, build it."""
    from autoresearch.best import export_artifact, provenance
    from autoresearch.session import moved
    from autoresearch.study import find_study

    study = find_study(place, mode)
    subject = moved(study.subject, model)
    facts = provenance(study, subject)
    click.echo(json.dumps(facts) if as_json else json.dumps(facts, indent=1))
    if out is not None:
        artifact = export_artifact(study, subject, out, ConsoleProgress())
        click.echo(f"{artifact.path}: built from trial {facts['trial']}", err=True)


@research.command()
@directory
@click.option("--table", type=FOLDER, metavar="FILE", help="Table to write to [default: the one that amk build reads].")
@click.option("--commit", metavar="HASH", help="Of the sources, where the search did not run in a git checkout.")
def adopt(place: Path, mode: Any, table: Path | None, commit: str | None) -> None:
    """Make the best measured schedule of DIR the default for its GPU and shape: an entry of the tuned table."""
    from amk.tuned import describe
    from autoresearch.adopt import TABLE
    from autoresearch.adopt import adopt as write_entry
    from autoresearch.study import find_study

    study, target = find_study(place, mode), table or TABLE
    entry = write_entry(study, study.subject, target, commit)
    click.echo(f"{target}: {entry.gpu}, {entry.evidence['model']}: {describe(entry.evidence)}")


@research.command()
@directory
@click.argument("trial", type=click.IntRange(min=1))
@click.option("--loads", type=click.IntRange(min=2), default=10, show_default=True)
@click.option("--model", type=FOLDER, metavar="MODEL", help="Where the model lies now, if it was moved.")
@json_option
def replay(place: Path, trial: int, mode: Any, loads: int, model: Path | None, as_json: bool) -> None:
    """Check and measure a TRIAL of DIR again, in a fresh process; its verdict stays."""
    from autoresearch.replay import replay as replay_trial
    from autoresearch.session import last_settings, make_session, moved
    from autoresearch.study import find_study

    study = find_study(place, mode)
    session = make_session(study, moved(study.subject, model), last_settings(study), _say)
    facts = replay_trial(session.supervisor, trial, loads)
    if as_json:
        click.echo(json.dumps(facts))
        return
    then = "never measured" if facts["factor_then"] is None else f"{facts['factor_then']:.4f}x"
    click.echo(
        f"trial {trial} ({facts['verdict']} at {facts['rung']}): then {then}, now {facts['now']} ({facts['mode']})"
    )


@research.command()
@directory
@click.option("--format", "form", type=click.Choice(["jsonl"]), default="jsonl", show_default=True)
@click.option("--events", is_flag=True, help="Every event instead of every trial.")
@click.option("--out", type=FOLDER, metavar="FILE", help="Where to write [default: stdout].")
def export(place: Path, mode: Any, form: str, events: bool, out: Path | None) -> None:  # noqa: ARG001
    """Write the journal of DIR as JSON lines: verdicts, witnesses, edits, raw pairs, rewards."""
    from autoresearch.export import event_lines, trial_lines
    from autoresearch.space import knob_space
    from autoresearch.study import find_study

    study = find_study(place, mode)
    lines = event_lines(study.journal.events()) if events else trial_lines(study.refresh(), knob_space())
    if out is None:
        for line in lines:
            click.echo(line)
    else:
        out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@research.command()
@options(_SUBJECT[:-2], _SUBJECT[-1:])
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="S", help="Of the search.")
@click.option("--nights", type=click.IntRange(min=1), default=1, show_default=True, metavar="N")
def prepare(seed: int, nights: int, **given: Any) -> None:
    """Compute the oracle's answers for a measured search of MODEL, which needs no GPU; the search finds them."""
    from autoresearch.prepare import prepare as compute
    from autoresearch.session import cache_of

    cache, subject = cache_of(_request({**given, "mode": "measured"}))
    compute(subject, cache, seed, nights, click.echo)
    click.echo(f"{cache}: ready for {nights} nights of {subject}")


@research.command()
@options(_SUBJECT, _NIGHT)
def serve(**given: Any) -> int:
    """Be an MCP server over stdio: an agent searches DIR or MODEL with six tools, until it leaves."""
    from autoresearch.mcp_server import serve_night
    from autoresearch.session import MCP_AGENT, make_session, open_study

    given["hours"] = given["hours"] or 8.0
    settings = _settings({**given, "proposer": MCP_AGENT})
    study, subject = open_study(_request(given))
    session = make_session(study, subject, settings, _say)
    return serve_night(session)


# Shared


def _say(text: str) -> None:
    click.echo(text, err=True)


def _request(given: dict[str, Any]) -> Any:
    from autoresearch.session import Request

    names = ("place", "gpu", "max_seq", "kv_dtype", "random_weights", "workload", "positions", "mode", "out")
    return Request(**{name: given[name] for name in names})


def _settings(given: dict[str, Any]) -> Settings:
    from autoresearch.settings import Settings

    return Settings(
        **{name: given[name] for name in NIGHTLY},
        proposer=given["proposer"],
        agent_tokens=given.get("llm_tokens"),
        agent_money=given.get("llm_money"),
        workers=given.get("workers", 1),
        ahead=given["ahead"] or max(1, min(4, (os.cpu_count() or 1) // 2)),
        learn_from=tuple(str(path) for path in given["learn_from"]),
    )


def _endpoint(given: dict[str, Any]) -> Any:
    from autoresearch.proposers.llm import endpoint_of

    prices = given["llm_price_in"], given["llm_price_out"]
    return endpoint_of(given["llm_url"], given["llm_model"], given["llm_key_env"], *prices)


def _fleet(given: dict[str, Any], study: Study, settings: Settings) -> Any:
    if given.get("ray") is None:
        return None
    from autoresearch.ray_fleet import RayFleet  # several workers on one GPU would time each other

    address = None if given["ray"] == "local" else given["ray"]
    gpus = 1.0 if study.folder.name == "measured" else 0.0
    return RayFleet(max(settings.workers, given.get("workers", 1)), address, gpus)


def _ended(code: int, reason: str) -> int:
    words = {0: "improved", 10: "nothing better", 130: "stopped"}
    click.echo(f"{words.get(code, code)}: {reason}")
    return code
