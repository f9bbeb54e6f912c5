"""`amk research` on the command line: a predicted night end to end with real workers, and every command on its DIR."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from amk.cli.main import cli
from amk.cli.research import NIGHTLY, run, serve
from autoresearch.errors import INFRASTRUCTURE, NOTHING_BETTER
from autoresearch.settings import Settings
from autoresearch.study import Study
from tests.autoresearch.toy import save_toy
from tests.conftest import why_no_gpu

Amk = Callable[..., Result]


def amk(*args: str) -> Result:
    return CliRunner().invoke(cli, ["research", *args], prog_name="amk")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A predicted search of one trial, by real worker processes."""
    place = tmp_path_factory.mktemp("research")
    model = save_toy(place / "toy")
    done = amk(
        "run", str(model), "--random-weights", "7", "--gpu", "h200", "--max-seq", "100", "--mode", "predicted",
        "--trials", "1", "--aa-loads", "4", "--proposer", "coordinate", "--position", "64",
        "--out", str(place / "search"),
    )  # fmt: skip
    assert done.exit_code in (0, NOTHING_BETTER), done.output
    assert "predicted search" in done.stderr
    return place / "search"


def test_status(folder: Path) -> None:
    text = amk("status", str(folder)).output
    assert "toy on h200, 100 tokens, fp16 K/V (predicted)" in text
    facts = json.loads(amk("status", str(folder), "--json").output)
    assert facts["verdicts"]["baseline"] == 1
    assert facts["workload"] == [{"pos": 64, "weight": 1.0, "steps": 32}]


def test_report_export_best_and_replay(folder: Path, tmp_path: Path) -> None:
    assert Path(amk("report", str(folder)).output.strip()).is_file()
    records = [json.loads(line) for line in amk("export", str(folder), "--format", "jsonl").output.splitlines()]
    assert records[0]["verdict"] == "baseline"
    assert amk("export", str(folder), "--events", "--out", str(tmp_path / "events")).exit_code == 0
    assert '"kind": "night"' in (tmp_path / "events").read_text()
    best = amk("best", str(folder), "--export", str(tmp_path / "best"))
    assert json.loads(best.stdout)["mode"] == "predicted"
    assert (tmp_path / "best" / "manifest.json").is_file()
    replayed = json.loads(amk("replay", str(folder), "1", "--loads", "4", "--json").stdout)
    assert (replayed["same_content"], replayed["factor_now"], replayed["mode"]) == (True, 1.0, "predicted")


def test_the_command_line_has_the_defaults_of_the_settings() -> None:
    options = {param.name: param for command in (run, serve) for param in command.params}
    settings = {field.name: field.default for field in fields(Settings)}
    defaults = {name: settings[name] for name in NIGHTLY if settings[name] is not None}
    assert {name: options[name].default for name in defaults} == defaults
    assert {"min_gain", "pairs_per_load"} < set(defaults)


def test_an_ended_night_is_not_resumed(folder: Path) -> None:
    done = amk("resume", str(folder))
    assert done.exit_code == 2
    assert "has ended" in done.stderr


WITHOUT_GPU = pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU, so this is no mistake")
RUN = ("run", "{toy}", "--trials", "1", "--random-weights", "7")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "{toy}"], "needs a budget"),
        ([*RUN, "--position", "999", "--max-seq", "100"], "position 999"),
        ([*RUN, "--proposer", "no-such-command"], "no-such-command"),
        ([*RUN, "--proposer", "llm"], "--llm-url"),
        (["status", "{toy}"], "holds no search"),
        (["status", "{toy}", "--mode", "measured"], "holds no measured search"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: list[str], words: str, tmp_path: Path) -> None:
    toy = save_toy(tmp_path / "toy")
    out = ["--out", str(tmp_path / "out")] if arguments[0] == "run" else []
    done = amk(*(argument.format(toy=toy) for argument in arguments), *out)
    assert done.exit_code == 2, done.output
    assert words in done.stderr


@WITHOUT_GPU
def test_a_measured_search_without_a_gpu_is_an_infrastructure_failure(tmp_path: Path) -> None:
    run = [argument.format(toy=save_toy(tmp_path / "toy")) for argument in RUN]
    done = amk(*run, "--mode", "measured", "--out", str(tmp_path / "out"))
    assert done.exit_code == INFRASTRUCTURE
    assert "--mode measured: " in done.stderr


def test_an_unusable_workload_file(tmp_path: Path) -> None:
    from amk.errors import UsageError
    from autoresearch.workload import read_workload

    file = tmp_path / "w.json"
    file.write_text('{"points": [{"pos": 0}, {"prompt": 10, "output": 80, "weight": 3}]}')
    points = read_workload(file, 200).points
    assert [point.pos for point in points] == [0, 30, 50, 70]
    assert sum(point.weight for point in points) == pytest.approx(1)
    bad = {"{": "not a workload", '{"points": []}': "no points", '{"points": [{"pos": -1}]}': "position -1"}
    for text, words in bad.items():
        file.write_text(text)
        with pytest.raises(UsageError, match=words):
            read_workload(file, 200)


def test_an_artifact_keeps_its_search_inside(folder: Path, tmp_path: Path) -> None:
    from autoresearch.study import find_study, root_of

    artifact: Any = tmp_path / "artifact"
    artifact.mkdir()
    (artifact / "manifest.json").write_text("{}")
    assert root_of(artifact) == artifact / "research"
    Study(artifact / "research" / "predicted").close()
    assert find_study(artifact).folder.name == "predicted"
    assert find_study(folder, "predicted").subject.mode == "predicted"
