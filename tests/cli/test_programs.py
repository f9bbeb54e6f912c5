"""`amk inspect` and `amk validate`: finding the Program, printing it, and passing on the verdict."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from amk.gpus import lookup
from schedule_ir import Program, encode
from schedule_ir.codec import Tables, to_json
from tests.cli.conftest import Run

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


@dataclass(frozen=True)
class Violation:
    rule: int
    message: str


@dataclass(frozen=True)
class Report:
    ok: bool = True
    violations: tuple[Violation, ...] = field(default=())

    def __str__(self) -> str:
        return "accepted" if self.ok else "\n".join(f"rule {v.rule}: {v.message}" for v in self.violations)


REJECTED = Report(ok=False, violations=(Violation(2, "cycle"), Violation(4, "race")))


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with nothing but a Program in it."""
    (tmp_path / "program.json").write_text(to_json(encode(EMPTY)))
    describe = SimpleNamespace(describe=lambda program: f"{program.sms} SMs of {program.target.name}")
    monkeypatch.setitem(sys.modules, "amk.schedule_text", describe)
    return tmp_path


def verdict(monkeypatch: pytest.MonkeyPatch, report: Report) -> None:
    def validate(tables: Tables) -> Report:
        assert tables.header["config"] == {"sms": 2}
        return report

    monkeypatch.setitem(sys.modules, "validator", SimpleNamespace(validate=validate))


def test_inspect(run: Run, artifact: Path) -> None:
    assert run("inspect", str(artifact)).stdout == "2 SMs of l4\n"


def test_inspect_json(run: Run, artifact: Path) -> None:
    document = json.loads(run("inspect", str(artifact), "--json").stdout)
    assert document == json.loads(to_json(encode(EMPTY)))


@pytest.mark.parametrize("command", ["inspect", "validate"])
@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "No such file"), (b"{", "not a Program"), (b"\xff", "not a Program"), (b'{"header": {}}', "")],
)
def test_damaged_artifact(run: Run, tmp_path: Path, command: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "program.json").write_bytes(content)
    result = run(command, str(tmp_path))
    assert result.exit_code == 6
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_accepted(run: Run, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict(monkeypatch, Report())
    result = run("validate", str(artifact / "program.json"))
    assert (result.exit_code, result.stdout) == (0, "accepted\n")


def test_rejected(run: Run, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict(monkeypatch, REJECTED)
    result = run("validate", str(artifact))
    assert result.exit_code == 4
    assert result.stdout == "rule 2: cycle\nrule 4: race\n"
    assert result.stderr == f"amk: {artifact}: rejected by rule 2, 4; the report names the tasks to change\n"


@pytest.mark.parametrize(("rule", "code"), [("4", 4), ("5", 0)])
def test_one_rule(run: Run, artifact: Path, monkeypatch: pytest.MonkeyPatch, rule: str, code: int) -> None:
    verdict(monkeypatch, REJECTED)
    result = run("validate", str(artifact), "--rule", rule, "--json")
    assert result.exit_code == code
    assert [violation["rule"] for violation in json.loads(result.stdout)["violations"]] == ([4] if code else [])


def test_no_such_rule(run: Run, artifact: Path) -> None:
    assert run("validate", str(artifact), "--rule", "13").exit_code == 2
