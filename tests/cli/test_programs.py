"""`amk inspect` and `amk validate`: finding the Program, printing it, and passing on the verdict."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import validator
from amk.gpus import lookup
from schedule_ir import Program, encode
from schedule_ir.codec import Tables, to_json
from tests.cli.conftest import Run
from tests.model.builders import CONFIG
from validator import Report, Violation

EMPTY = Program(
    target=lookup("l4").as_target(),
    config={"sms": 2},
    scalars={},
    kv_dtype="fp16",
    buffers=(),
    variants=(),
    lanes={},
    tiles=(),
    norms=(),
)


STATS = {"tasks": 0, "lanes": 6, "handoffs": 0, "seconds": 0.0}
ACCEPTED = Report(True, (), (), STATS, ())
REJECTED = Report(False, (Violation(2, "cycle"), Violation(4, "race")), (), STATS, ())


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Program in a file of its own."""
    path = tmp_path / "program.json"
    path.write_text(to_json(encode(EMPTY)))
    describe = SimpleNamespace(describe=lambda program: f"{program.sms} SMs of {program.target.name}")
    monkeypatch.setitem(sys.modules, "amk.schedule_text", describe)
    return path


def verdict(monkeypatch: pytest.MonkeyPatch, report: Report) -> list[dict[str, Any]]:
    """Let the validator answer with `report`; what it is asked."""
    asked: list[dict[str, Any]] = []

    def validate(tables: Tables, model: object, **options: Any) -> Report:
        asked.append({"config": tables.header["config"], "model": model, **options})
        return report

    monkeypatch.setattr(validator, "validate", validate)
    return asked


def test_inspect(run: Run, program: Path) -> None:
    assert run("inspect", str(program)).stdout == "2 SMs of l4\n"


def test_inspect_json(run: Run, program: Path) -> None:
    document = json.loads(run("inspect", str(program), "--json").stdout)
    assert document == json.loads(to_json(encode(EMPTY)))


@pytest.mark.parametrize("command", ["inspect", "validate"])
@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), (b"{", "not a Program"), (b"\xff", "not a Program"), (b'{"header": {}}', "")],
)
def test_damaged_program(run: Run, tmp_path: Path, command: str, content: bytes | None, says: str) -> None:
    path = tmp_path / "program.json"
    if content is not None:
        path.write_bytes(content)
    result = run(command, str(path))
    assert result.exit_code == 6
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_accepted(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verdict(monkeypatch, ACCEPTED)
    result = run("validate", str(program))
    assert (result.exit_code, result.stdout) == (0, ACCEPTED.text() + "\n")
    assert asked == [{"config": {"sms": 2}, "model": None, "rule": None, "kernel": None}]


def test_rejected(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict(monkeypatch, REJECTED)
    result = run("validate", str(program))
    assert result.exit_code == 4
    assert result.stdout == REJECTED.text() + "\n"
    says = "rejected by rule 2 (progress), 4 (races); the report names the tasks to change"
    assert result.stderr == f"amk: {program}: {says}\n"


def test_one_rule_as_json(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = verdict(monkeypatch, REJECTED)
    result = run("validate", str(program), "--rule", "4", "--json")
    assert result.exit_code == 4
    assert [violation["rule"] for violation in json.loads(result.stdout)["violations"]] == [2, 4]
    assert asked[0]["rule"] == 4


def test_a_program_of_a_named_model(run: Run, program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    asked = verdict(monkeypatch, ACCEPTED)
    run("validate", str(program), "--model", str(tmp_path))
    assert asked[0]["model"].hidden == CONFIG["hidden_size"]


def test_no_such_rule(run: Run, program: Path) -> None:
    assert run("validate", str(program), "--rule", "13").exit_code == 2
