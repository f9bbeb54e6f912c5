"""Results: which positions are measured, what a row says, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from amk.bench import run as bench
from amk.bench.ceiling import Ceiling, Setting
from amk.bench.energy import Energy
from amk.bench.measure import Latency
from amk.bench.provenance import commit
from amk.bench.report import text_of
from amk.bench.run import Request, Result
from amk.cli.bench import command_line, parse_positions
from amk.errors import UsageError
from tests.bench.fakes import artifact, program

CEILING = Ceiling(1 << 20, (Setting(8192, 4, 3e9), Setting(16384, 6, 4e9)))


def latency(pos: int, ms: float = 0.5, same: bool = True) -> Latency:
    return Latency(pos, 64, (ms, ms, 2 * ms), Energy(0.25, 500.0), {"sm_mhz": 1980}, same, same)


@pytest.fixture
def result() -> Result:
    """A result of two positions, as `run_bench` makes it before the child processes."""
    made, built = program(), artifact()
    gpu = {"name": "NVIDIA H200", "driver": "580.1", "power_limit_w": 700.0}
    return Result(
        {
            "model": bench.model_row(built, made),
            "provenance": {"gpu": gpu},
            "start": {"load_seconds": 1.5, "first_token_seconds": 0.02, "prompt_tokens": 32},
            "ceiling": bench.ceiling_row(CEILING, Ceiling(1 << 20, (Setting(16384, 6, 5e9),))),
            "positions": [bench.position_row(made, latency(pos), 5e9) for pos in (0, 512)],
        }
    )


def children(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], problem: str | None) -> list[Any]:
    asked: list[Any] = []

    def run_child(module: str, request: dict[str, Any], timeout: float) -> tuple[list[dict[str, Any]], str | None]:
        asked.append((module, request, timeout))
        return rows, problem

    monkeypatch.setattr(bench, "run_child", run_child)
    monkeypatch.setattr(bench, "has_torch", lambda: True)
    return asked


def test_default_positions_are_those_that_fit() -> None:
    assert bench.positions_of(program(max_seq=1088), Request()) == [0, 1024]
    assert bench.positions_of(program(max_seq=1087), Request()) == [0]
    assert bench.positions_of(program(max_seq=1088), Request([512, 8, 512])) == [8, 512]


@pytest.mark.parametrize("positions", [[1025], [-1], []])
def test_positions_that_do_not_fit(positions: list[int]) -> None:
    with pytest.raises(UsageError, match="choose positions from 0 to 1024"):
        bench.positions_of(program(max_seq=1088), Request(positions))


def test_the_higher_ceiling_counts(result: Result) -> None:
    ceiling = result.data["ceiling"]
    assert (ceiling["bytes_per_second"], ceiling["before"], ceiling["after"]) == (5e9, 4e9, 5e9)
    assert len(ceiling["settings"]) == 2


def test_position_row(result: Result) -> None:
    row = result.row(512)
    assert row is not None
    floor = (row["weight_bytes"] + row["kv_bytes"]) / 5e9 * 1e3
    assert row["floor_ms"] == pytest.approx(floor)
    assert row["ceiling_percent"] == pytest.approx(100 * floor / 0.5)
    assert (row["ms"], row["ms_slowest"], row["spread"], row["tokens_per_second"]) == (0.5, 1.0, 1.0, 2000.0)
    assert result.row(3) is None


def test_check_joins_the_rows(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"pos": 512, "relative_error": 4e-4, "argmax_equal": True}, {"unexpected": 1}]
    asked = children(monkeypatch, rows, None)
    bench.add_check(result, Path("artifact"), [0, 512])
    assert asked[0][1]["positions"] == [0, 512]
    assert [row["relative_error"] for row in result.data["positions"]] == [None, 4e-4]
    assert result.data["check"]["error"] is None


def test_baselines_are_measured_in_the_middle(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"method": "cublas", "pos": 544, "ms": 1.5, "attention": "gqa"}, {"method": "compile", "error": "no gcc"}]
    asked = children(monkeypatch, rows, "not finished after 9 s")
    bench.add_baselines(result, program(), Request(methods=("cublas", "compile"), baseline_seconds=9), [0, 512])
    module, request, timeout = asked[0]
    assert (module, request["positions"], timeout) == ("amk.bench.baselines", [32, 544], 9)
    assert result.data["positions"][1]["baselines"] == {"cublas": {"ms": 1.5, "attention": "gqa"}}
    assert result.data["baseline_errors"] == {"all": "not finished after 9 s", "compile": "no gcc"}


def test_without_torch(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "has_torch", lambda: False)
    bench.add_check(result, Path("artifact"), [0])
    bench.add_baselines(result, program(), Request(methods=("cublas",)), [0])
    text = text_of(result.data)
    assert "not checked against a reference: torch is not installed" in text
    assert "baseline all: torch is not installed" in text


def test_text(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    result.data["positions"][1] |= {"relative_error": 4e-4, "argmax_equal": False, "same_logits": False}
    result.data |= {"methods": {"cublas": "cuBLAS"}, "check": {"error": None}, "baseline_errors": {}}
    result.data["positions"][0]["baselines"] = {"cublas": {"ms": 1.0}}
    lines = text_of(result.data).splitlines()
    assert lines[0].startswith("tiny on NVIDIA H200 (driver 580.1, 700.0 W limit)")
    first, second = (line.split() for line in lines if line.split()[:1] in (["0"], ["512"]))
    assert first[:2] == ["0", "0.5000"]
    assert first[-2:] == ["1.000", "(2.00x)"]
    assert {"DIFFERS", "4.0e-04", "ARGMAX"} <= set(second)
    json.dumps(result.data)


def test_positions_option() -> None:
    assert parse_positions("0,1024") == [0, 1024]
    assert parse_positions(None) is None
    with pytest.raises(UsageError, match="not a list of whole numbers"):
        parse_positions("0;1")


def test_the_recorded_command_names_no_folders() -> None:
    assert command_line(["/home/me/bin/amk", "bench", "/home/me/model", "--steps", "8"]) == "amk bench model --steps 8"


def test_commit_only_of_a_checkout_of_amk(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
