"""The scripts in benchmarks/: shapes, the README table with its targets, and the fit of the cost model."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import numpy as np
import numpy.typing as npt
import pytest

from amk.bench.gpu import compile_source
from amk.bench.run import POSITIONS
from amk.cost.calibration import load
from amk.model.walker import walk
from amk.runtime.machine import Launch, LaunchResult
from schedule_ir import Tables

ROOT = Path(__file__).parent.parent.parent


def script(name: str) -> ModuleType:
    """A script of benchmarks/ as a module."""
    if (folder := str(ROOT / "benchmarks")) not in sys.path:  # as when it is run: scripts import each other
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def result(shape: str, size: int, **changes: Any) -> dict[str, Any]:
    rows = [
        {
            "pos": pos, "steps": 64, "ms": 0.5, "tokens_per_second": 2000.0, "ceiling_percent": 94.0,
            "joules_per_token": 0.3, "relative_error": 4e-4, "same_logits": True, "same_tokens": True,
            "baselines": {"cublas": {"ms": 1.5}, "compile": {"ms": 1.0}}, **changes,
        }
        for pos in (0, 1024)
    ]  # fmt: skip
    gpu = {"name": "NVIDIA H200", "driver": "580.1"}
    return {
        "model": {"name": shape, "weight_bytes": size, "kv_dtype": "fp16"},
        "provenance": {
            "gpu": gpu,
            "time": "2026-01-02T03:04:05+00:00",
            "commit": "0123456789+",
            "packages": {"torch": "2.11"},
        },
        "start": {"first_token_seconds": 0.02},
        "positions": rows,
        "build": {"seconds": 70.0, "peak_bytes": 3 << 30},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n")
    results = tmp_path / "h200"
    results.mkdir()
    (results / "llama-8b.json").write_text(json.dumps(result("llama-8b", 15, relative_error=None)))
    (results / "llama-1b.json").write_text(json.dumps(result("llama-1b", 2, same_logits=False)))
    return tmp_path


def bench_table(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(ROOT / "scripts/bench_table"),
        "--readme",
        str(folder / "README.md"),
        "--results",
        str(folder / "h200"),
    ]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def test_table(folder: Path) -> None:
    assert bench_table(folder, "--check").returncode == 1
    done = bench_table(folder)
    assert done.returncode == 0, done.stderr
    text = (folder / "README.md").read_text()
    assert text.startswith("before\n<!-- bench:begin -->\n| shape |")
    assert text.endswith("<!-- bench:end -->\nafter\n")
    assert "| llama-1b | 1,024 | 0.500 | 2,000 | 94 | 0.30 | 4e-04, reruns differ | 1.00 ms (compile), 2.00x |" in text
    assert text.index("llama-1b") < text.index("llama-8b")
    assert text.count("NVIDIA H200, driver 580.1, torch 2.11, 2026-01-02, commit 0123456+") == 1
    assert bench_table(folder, "--check").returncode == 0


def test_targets(folder: Path) -> None:
    lines = bench_table(folder).stdout.splitlines()
    assert "reached  llama-1b @0 percent of ceiling: 94, target >= 93" in lines
    assert "MISSED   llama-8b @0 percent of ceiling: 94, target >= 96" in lines
    assert "reached  llama-1b @0 times faster than the best baseline: 2, target >= 1.6" in lines
    assert "MISSED   llama-1b @0 reruns are bit-identical" in lines
    assert "-        llama-8b @0 relative error of logits: not measured, target <= 0.001" in lines
    assert "MISSED   llama-8b build seconds: 70, target <= 60" in lines
    assert "reached  llama-8b build gib: 3, target <= 4" in lines


def test_a_readme_without_markers(folder: Path) -> None:
    (folder / "README.md").write_text("nothing\n")
    done = bench_table(folder)
    assert done.returncode == 1
    assert "needs one line" in done.stderr


def test_targets_are_of_shapes_and_positions_that_are_measured() -> None:
    targets = json.loads((ROOT / "benchmarks/targets.json").read_text())
    shapes = json.loads((ROOT / "benchmarks/shapes.json").read_text())
    for name in ("ceiling_percent", "ms"):
        assert set(targets[name]) <= set(shapes)
        assert {int(pos) for cells in targets[name].values() for pos in cells} <= set(POSITIONS)


def test_shapes_are_models() -> None:
    run = script("run_h200")
    shapes = json.loads((ROOT / "benchmarks/shapes.json").read_text())
    sizes = {name: walk(run.COMMON | shape, None) for name, shape in shapes.items()}
    assert sizes["llama-8b"].intermediate == 14336
    assert sizes["smollm2-135m"].head_dim == 64
    assert [int(pos) for pos in run.POSITIONS.split(",")] == list(POSITIONS)


def test_fit_recovers_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """From times that the model itself made with other constants."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    fit = script("fit_cost")
    shape = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 4096, "tie_word_embeddings": True}  # fmt: skip
    points = [{"shape": "tiny", "pos": pos, "steps": 64, "ms": 1.0, "knobs": {}} for pos in (0, 1000)]
    monkeypatch.setattr(fit, "MAX_SEQ", 2048)
    monkeypatch.setattr(fit, "shapes", lambda: {"tiny": shape})
    plans = fit.make_plans(points, "h200")
    wanted = fit.of_constants({**vars(load()), "handoff_us": 3.0, "block_us": 1.0})
    for plan, point in zip(plans, points, strict=True):
        point["ms"] = fit.play(plan, wanted, 4.59e12).token_us / 1e3
    found = fit.fit(plans, points, 4.59e12)
    assert abs(fit.residuals(plans, points, 4.59e12, found)).max() < 0.01


class Recorded:
    """A machine that notes which kernel it was given, and takes as long as its cubin is."""

    last_launch_ms = 0.0

    def __init__(self) -> None:
        self.kernels: list[bytes] = []

    def use_kernel(self, tables: Tables, cubin: bytes) -> None:
        assert tables.header["config"]["shared_bytes"] > 0
        self.kernels.append(cubin)

    def run(self, launch: Launch, _: Callable[[int], None]) -> LaunchResult:
        self.last_launch_ms = 64.0 * len(self.kernels[-1])
        return LaunchResult([self.kernels[-1][0]] * launch.steps, None, launch.steps, "length")


def test_kernels_of_the_same_tables_are_timed_turn_about(tmp_path: Path) -> None:
    kernels = script("kernels")
    (tmp_path / "model").mkdir()
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 99,
    }
    (tmp_path / "model" / "config.json").write_text(json.dumps(kernels.COMMON | sizes))
    options = argparse.Namespace(positions=[0], gpu="h200")
    names = [str(ROOT), f"{ROOT}:in_flight=5,stocked=2", f"{ROOT}:compute_warps=4"]
    built = [kernels.build(name, tmp_path / "model", tmp_path / str(i), options) for i, name in enumerate(names)]
    same, others = kernels.of_the_same_tables(built)
    assert ([kernel.name for kernel in same], [(kernel.name, changed) for kernel, changed in others]) == (
        names[:2], [(names[2], "config compute_warps")],
    )  # fmt: skip
    assert same[0].artifact.cubin != same[1].artifact.cubin
    for kernel, cubin in zip(same, (b"aa", b"bbb"), strict=True):
        kernel.artifact = replace(kernel.artifact, cubin=cubin)
    machine = Recorded()
    kernels.time_kernels(machine, same, [0, 8], 2)
    assert machine.kernels == [b"aa", b"bbb"] * 2
    assert [kernel.times for kernel in same] == [{0: [2.0] * 6, 8: [2.0] * 6}, {0: [3.0] * 6, 8: [3.0] * 6}]
    first, second = kernels.rows(same)
    assert first.endswith("0: 2.0000 (2.0000) 8: 2.0000 (2.0000)")
    assert second.endswith("0: 3.0000 (3.0000) 8: 3.0000 (3.0000) other tokens")
    assert [row["same_tokens"] for row in kernels.to_json("x", same, {})["results"]] == [True, False]


def test_the_instruction_cache_is_probed_with_as_much_code_as_is_said() -> None:
    probe = script("instruction_cache")
    short, long = (len(compile_source(probe.source(kib), "sm_90a")) for kib in (8, 24))
    assert long - short == (24 - 8) * 1024


def test_what_a_run_did_not_get_to_is_compared_with_an_earlier_run_on_the_same_platform(tmp_path: Path) -> None:
    table = script("table")
    earlier = result("a", 1)
    earlier["provenance"] = earlier["provenance"] | {"commit": "fedcba9876", "time": "2026-01-01T00:00:00+00:00"}
    (tmp_path / "a.json").write_text(json.dumps(earlier))
    now = result("a", 1, baselines={})
    now["positions"][0]["baselines"] = {"cublas": {"ms": 2.0}}
    merged = table.with_earlier_baselines({"a": now}, tmp_path)
    lines = table.table(merged).splitlines()
    assert [line.split("|")[-2].strip() for line in lines[2:4]] == [
        "2.00 ms (cublas), 4.00x",
        "1.00 ms (compile), 2.00x†",
    ]
    assert lines[-1] == "† baseline of an earlier run, same GPU model, driver and torch: 2026-01-01, commit fedcba9."
    targets = {"ceiling_percent": {}, "ms": {}, "times_faster_than_baselines": 1.6, "relative_error": 0.001}
    said = [line for line in table.position_targets("a", merged["a"]["positions"][1], targets) if "faster" in line]
    assert said == ["reached  a @1024 times faster than the best baseline of an earlier run: 2, target >= 1.6"]
    other = json.loads(json.dumps(now))
    other["provenance"]["gpu"]["driver"] = "590.1"
    assert table.with_earlier_baselines({"a": other}, tmp_path) == {"a": other}
    assert table.with_earlier_baselines({"a": now}, tmp_path / "none") == {"a": now}


def test_clocks_are_told_by_length_of_code_and_warps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probe = script("instruction_cache")
    gpu = Mock(device=Mock(sms=3), memory=Mock(allocate=Mock(side_effect=int)))
    shapes = []

    def to_host(taken: npt.NDArray[np.int64], address: int) -> None:
        assert address == taken.nbytes, "what was allocated for it"
        shapes.append(taken.shape)
        taken[:] = 2 * probe.TIMED * 512  # two clocks an instruction of 8 KiB

    for name, stand_in in (("driver", Mock), ("call", Mock()), ("to_host", to_host)):
        monkeypatch.setattr(probe, name, stand_in)
    monkeypatch.setattr(probe, "from_device", lambda _: Mock(as_target=lambda: Mock(nvrtc_arch="sm_90a")))
    assert probe.measure(gpu, (8, 16)) == {8: [2.0] * 3, 16: [1.0] * 3}
    assert shapes == [(3, warps) for warps in probe.WARPS] * 2
    assert gpu.memory.free.call_count == len(shapes)
    assert capsys.readouterr().out.splitlines()[2].split() == ["8", "2.00", "2.00", "2.00"]
