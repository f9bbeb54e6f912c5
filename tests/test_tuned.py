"""The table of tuned schedules: data that is checked, exact in what it applies to, and recorded where it is used."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import amk
from amk import tuned
from amk.artifact import read_artifact
from amk.cli.main import cli
from amk.errors import ArtifactError, RejectedProgramError
from amk.lower import Knobs
from amk.model.source import open_model
from amk.model.walker import walk
from amk.tuned import Entry
from tests.model.builders import CONFIG
from tests.small import MAX_SEQ, small_model

EVIDENCE: dict[str, Any] = {
    "factor": 1.12, "low": 1.1, "high": 1.14, "alpha": 0.05, "pairs": 40, "loads": 20, "default": asdict(Knobs()),
    "workload": [{"pos": 4032, "weight": 1.0, "steps": 32}], "max_seq": 4096, "model": "an example",
    "date": "2026-01-31", "commit": "0" * 40, "amk": "0.1.0", "kernels_sha256": "0" * 64,
    "machine": {"device": "an example"},
}  # fmt: skip
"""Of no measurement: these tests write tables of their own."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def entry(model: Path) -> Entry:
    knobs = asdict(Knobs()) | {"in_flight": 6}
    return Entry("h200", tuned.shape_of(open_model(model).graph), "fp16", knobs, dict(EVIDENCE))


@pytest.fixture
def ship(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the package hold these entries."""

    def use(*entries: Entry) -> None:
        monkeypatch.setattr(tuned, "shipped", lambda: entries)

    return use


def table(*entries: Any) -> str:
    return json.dumps({"format": 1, "entries": list(entries)})


def test_the_shipped_table_is_valid_and_only_measured() -> None:
    for entry in tuned.shipped():
        assert entry.evidence["low"] > 1
        assert entry.evidence["machine"]


def test_a_table_comes_back_as_it_was_written(entry: Entry, tmp_path: Path) -> None:
    tuned.write_table(tmp_path / "t.json", [entry])
    (read,) = tuned.parse((tmp_path / "t.json").read_text(), "t.json")
    assert (read, read.sha256) == (entry, entry.sha256)
    better = Entry(**{**asdict(entry), "knobs": {"in_flight": 8}})
    assert better.sha256 != entry.sha256
    assert tuned.with_entry([entry], better) == (better,)
    other = Entry(**{**asdict(entry), "gpu": "l4"})
    assert tuned.with_entry([entry], other) == (entry, other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu": ""}, "gpu ''"),
        ({"kv_dtype": "int4"}, "kv_dtype 'int4'"),
        ({"shape": {"hidden": 1}}, "shape"),
        ({"knobs": {}}, "no setting"),
        ({"knobs": {"speed": 11}}, "no knob called 'speed'"),
        ({"knobs": {"in_flight": 7}}, "in_flight = 7 is not one of"),
        ({"knobs": {"in_flight": True}}, "in_flight = True"),
        ({"knobs": {"in_flight": "6"}}, "in_flight = '6'"),
        ({"evidence": {}}, "has to say factor"),
        ({"evidence": EVIDENCE | {"low": 0.99}}, "no improvement"),
        ({"evidence": EVIDENCE | {"high": 1.11}}, "no improvement"),
        ({"evidence": EVIDENCE | {"factor": "1.1"}}, "wrong type"),
        ({"evidence": EVIDENCE | {"commit": "main"}}, "no hash"),
        ({"evidence": EVIDENCE | {"date": "yesterday"}}, "isoformat"),
        ({"evidence": EVIDENCE | {"workload": []}}, "no points"),
        ({"evidence": EVIDENCE | {"workload": ["early"]}}, "no position"),
        ({"evidence": EVIDENCE | {"pairs": 0}}, "out of range"),
        ({"evidence": EVIDENCE | {"loads": 41}}, "out of range"),
        ({"more": 1}, "not the fields"),
    ],
)
def test_content_is_checked_on_reading(change: dict[str, Any], words: str, entry: Entry) -> None:
    with pytest.raises(ArtifactError, match="entry 0") as refusal:
        tuned.parse(table(asdict(entry) | change), "t.json")
    assert words in str(refusal.value)
    assert "--no-tuned" in str(refusal.value)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2, "entries": []}', '{"format": 1, "entries": {}}', "[" * 99999]
)
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(ArtifactError, match=r"t\.json"):
        tuned.parse(text, "t.json")


def test_two_entries_for_the_same(entry: Entry) -> None:
    with pytest.raises(ArtifactError, match="entry 1: is for the same"):
        tuned.parse(table(asdict(entry), asdict(entry)), "t.json")
    with pytest.raises(ArtifactError, match="NaN"):
        tuned.parse(table(asdict(entry) | {"evidence": EVIDENCE | {"high": float("nan")}}), "t.json")


def test_a_shape_is_sizes_and_structure_and_no_weights(model: Path) -> None:
    shape = tuned.shape_of(walk(CONFIG, None))
    assert shape == tuned.shape_of(walk(CONFIG | {"rms_norm_eps": 1e-3, "rope_theta": 7.0}, None))
    for change in ({"num_hidden_layers": 3}, {"attention_bias": True}, {"tie_word_embeddings": True}):
        assert shape != tuned.shape_of(walk(CONFIG | change, None)), change


def test_only_an_exact_match_applies(entry: Entry) -> None:
    find = tuned.find
    assert find("h200", entry.shape, "fp16", [entry]) == entry
    assert find("h100-sxm", entry.shape, "fp16", [entry]) is None
    assert find("h200", {**entry.shape, "layers": 3}, "fp16", [entry]) is None
    assert find("h200", entry.shape, "fp32", [entry]) is None


def test_a_build_takes_it_records_it_and_rebuilds_when_it_changes(
    model: Path, entry: Entry, ship: Callable[..., None], tmp_path: Path
) -> None:
    def build(**options: Any) -> dict[str, Any]:
        made = amk.build(model, gpu="h200", max_seq=MAX_SEQ, out=tmp_path / "a", **options)
        assert read_artifact(made.path).certificate["tuned"] == made.manifest["build"]["tuned"]
        key: dict[str, Any] = made.manifest["build"]
        return key

    ship()
    assert build()["tuned"] is None
    ship(entry)
    key = build()
    assert (key["knobs"]["in_flight"], key["tuned"]["sha256"]) == (6, entry.sha256)
    assert key["tuned"]["factor"] == 1.12
    again = Entry(**{**asdict(entry), "evidence": EVIDENCE | {"pairs": 80}})
    ship(again)
    assert build()["tuned"]["sha256"] == again.sha256
    assert build(tuned=False)["knobs"] == asdict(Knobs())
    assert build(knobs=Knobs(in_flight=4))["tuned"] is None


def test_the_command_says_so(model: Path, entry: Entry, ship: Callable[..., None], tmp_path: Path) -> None:
    def run(*more: str) -> str:
        command = ["build", str(model), "--gpu", "h200", "--max-seq", str(MAX_SEQ), "--out", str(tmp_path / "a"), *more]
        done = CliRunner().invoke(cli, command, prog_name="amk")
        assert done.exit_code == 0, done.output
        return done.stdout

    ship(entry)
    assert (
        "Schedule: tuned, 1.120x [1.100, 1.140] over the default before it at position 4,032, measured 2026-01-31"
        in run()
    )
    assert "tuned" not in run("--no-tuned")


def test_a_setting_that_does_not_fit_is_told(
    model: Path, entry: Entry, ship: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RejectedProgramError("shared memory: too much")

    ship(entry)
    monkeypatch.setattr("amk.pipeline.lower", refuse)
    with pytest.raises(RejectedProgramError, match="too much; its knobs were tuned for this shape; --no-tuned"):
        amk.build(model, gpu="h200", max_seq=MAX_SEQ, out=tmp_path / "a")
