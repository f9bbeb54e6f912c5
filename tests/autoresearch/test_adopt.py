"""From a journal to the table of tuned schedules, and from there to the default of a build and of the next search."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from amk import tuned
from amk.cli.main import cli
from amk.emit.compile import kernel_sources_sha256
from amk.errors import UsageError
from amk.lower import Knobs
from autoresearch.adopt import adopt
from autoresearch.space import knob_space
from autoresearch.study import Study
from autoresearch.subject import Subject, make_subject
from autoresearch.supervisor import Supervisor
from autoresearch.workload import at_positions
from tests.autoresearch.helpers import fleet, settings, write_script
from tests.autoresearch.test_supervisor import Listed
from tests.autoresearch.toy import save_toy


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Supervisor:
    """A search of real knobs over a fake worker: in_flight 8 is better."""
    folder = tmp_path_factory.mktemp("night")
    workload = at_positions([0, 64], 100)
    subject = make_subject(save_toy(folder / "toy"), "h200", 100, "fp16", 7, workload, "measured")
    script = write_script(folder, latency={"in_flight": {"8": 0.9}})
    made = Supervisor(Study(folder / "study" / "measured"), subject, settings(), fleet(folder, script))
    made.run(Listed({"in_flight": 8}))
    return made


def test_an_entry_has_the_evidence(night: Supervisor, tmp_path: Path) -> None:
    table = tmp_path / "t.json"
    entry = adopt(night.study, night.subject, table, None)
    (read,) = tuned.parse(table.read_text(), "t.json")
    assert read == entry
    assert (entry.gpu, entry.kv_dtype, entry.shape) == ("h200", "fp16", night.subject.shape)
    assert entry.knobs == {**knob_space().default, "in_flight": 8}
    evidence = entry.evidence
    assert evidence["low"] <= evidence["factor"] == pytest.approx(1 / 0.9, rel=0.01)
    assert (evidence["pairs"], evidence["loads"], evidence["default"]) == (12, 6, asdict(Knobs()))
    assert evidence["kernels_sha256"] == kernel_sources_sha256()
    assert evidence["workload"] == night.subject.workload
    assert evidence["machine"] == {"device": "fake"}


def test_it_becomes_the_default_of_the_next_search(
    night: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = adopt(night.study, night.subject, tmp_path / "t.json", None)
    monkeypatch.setattr(tuned, "shipped", lambda: (entry,))
    again = make_subject(night.subject.model, "h200", 100, "fp16", 7, night.subject.objective, "measured")
    assert again.default["in_flight"] == 8
    assert again.key != night.subject.key
    elsewhere = make_subject(night.subject.model, "l4", 100, "fp16", 7, night.subject.objective, "measured")
    assert elsewhere.default == asdict(Knobs())


@pytest.mark.parametrize(
    ("change", "words"),
    [({"mode": "predicted"}, "predicted"), ({"kernels_sha256": "0" * 64}, "other kernels")],
)
def test_what_is_no_evidence_is_refused(change: dict[str, str], words: str, night: Supervisor, tmp_path: Path) -> None:
    subject: Subject = replace(night.subject, **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=words):
        adopt(night.study, subject, tmp_path / "t.json", None)
    assert not (tmp_path / "t.json").exists()


def test_the_default_itself_is_no_improvement(night: Supervisor, tmp_path: Path) -> None:
    folder = tmp_path / "quiet"
    made = Supervisor(
        Study(folder / "measured"), night.subject, settings(), fleet(folder, write_script(folder, latency={}))
    )
    made.run(Listed({"in_flight": 8}))
    with pytest.raises(UsageError, match="no setting of knobs is confirmed"):
        adopt(made.study, made.subject, tmp_path / "t.json", None)


def test_without_a_commit_it_asks_for_one(night: Supervisor, tmp_path: Path) -> None:
    history = night.study.refresh()
    known, history.nights[1].code = history.nights[1].code, {}
    try:
        with pytest.raises(UsageError, match="--commit HASH"):
            adopt(night.study, night.subject, tmp_path / "t.json", None)
        assert adopt(night.study, night.subject, tmp_path / "t.json", "a" * 40).evidence["commit"] == "a" * 40
    finally:
        history.nights[1].code = known


def test_the_command(night: Supervisor, tmp_path: Path) -> None:
    place, table = str(night.study.folder.parent), tmp_path / "t.json"
    done = CliRunner().invoke(cli, ["research", "adopt", place, "--table", str(table)], prog_name="amk")
    assert done.exit_code == 0, done.output
    assert "h200, toy: 1.1" in done.stdout
    assert len(json.loads(table.read_text())["entries"]) == 1
    table.write_text("{")
    done = CliRunner().invoke(cli, ["research", "adopt", place, "--table", str(table)], prog_name="amk")
    assert done.exit_code == 6
