"""The gates pass a good machine, and each fails one that is broken in its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from amk.cli.main import cli
from amk.errors import DeviceError
from amk.model.source import Model
from amk.runtime.machine import Launch, LaunchResult, Machine
from amk.verify import GATES, CpuRig, GateResult, Level, run_gates
from amk.verify.floor import floor_ms, token_bytes
from amk.verify.gates import GateError, make_bench, plain_oracle
from amk.verify.logits import run_at
from amk.verify.models import changed, integer_model
from amk.verify.oracle import Oracle, relative_error
from schedule_ir import encode
from tests.autoresearch.toy import save_toy, toy_model, toy_program

BOTH = [Level.QUICK, Level.FULL]
NAMES = [gate.name for gate in GATES]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return toy_model(tmp_path_factory.mktemp("model"))


class Tampered:
    """A machine whose logits go through `tamper(logits, launch)`."""

    def __init__(self, inner: Machine, tamper: Callable[[Any, Launch], Any]) -> None:
        self._inner, self._tamper = inner, tamper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        result = self._inner.run(launch, on_token)
        return replace(result, logits=self._tamper(result.logits, launch))


class Rig(CpuRig):
    """A CPU rig that says it is a GPU, with faults of this test's choice."""

    def __init__(self, model: Model, **faults: Any) -> None:
        super().__init__(encode(toy_program(model)), model)
        self.faults = faults
        self.digests = 0
        self.program = replace(self.program, target=replace(self.program.target, l2_bytes=0))

    def machine(self, model: Model | None = None, fill: int | None = None) -> Machine:
        made = super().machine(model)
        for place in ("any", f"fill {fill}", f"model {model.checkpoint.kind}" if model else ""):
            if place in self.faults:
                return Tampered(made, self.faults[place])
        return made

    def overwritten(self, _: Machine) -> list[str] | None:
        return self.faults.get("overwritten", [])

    def constants_digest(self, _: Machine) -> str | None:
        self.digests += 1
        return str(self.digests if "weights" in self.faults else 0)

    def poison_kv(self, *_: Any) -> bool:
        return True

    def delayed(self) -> Machine | None:
        return Tampered(super().machine(), self.faults.get("delayed", same))

    def ms_per_token(self, *_: Any) -> float | None:
        return float(self.faults.get("ms", 1.0))


def same(logits: Any, _: Launch) -> Any:
    return logits


def last_bit(logits: Any, _: Launch) -> Any:
    return np.nextafter(logits, np.float32(np.inf))


def wrong(logits: Any, _: Launch) -> Any:
    return logits * np.float32(1.01)


def gates(model: Model, replay: str | None = None, **faults: Any) -> dict[str, GateResult]:
    rig = Rig(model, **faults)
    bench = make_bench(rig, rig.machine(), 3, 4.8e12)
    if replay is not None:
        bench.replay = lambda _: replay
    return {result.name: result for result in run_gates(bench, BOTH)}


def failed(results: dict[str, GateResult]) -> list[str]:
    return [name for name, result in results.items() if result.ok is False]


def test_a_good_machine_passes(model: Model) -> None:
    results = gates(model)
    assert list(results) == NAMES
    assert failed(results) == []
    assert results["fresh-process replay"].ok is None


def drift() -> Callable[[Any, Launch], Any]:
    """A machine that never repeats itself."""
    calls = iter(range(10**6))
    return lambda logits, _: logits + np.float32(1e-6 * next(calls))


@pytest.mark.parametrize(
    ("faults", "gate"),
    [
        ({"any": wrong}, "logits against the oracle"),
        ({"any": drift()}, "bit-identical repeats"),
        ({"ms": 1e-9}, "latency floor"),
        ({"fill 255": last_bit}, "canaries, unmodified weights"),
        ({"fill 60": last_bit}, "canaries, unmodified weights"),
        ({"overwritten": ["3 bytes after the buffer of 64 bytes"]}, "canaries, unmodified weights"),
        ({"weights": True}, "canaries, unmodified weights"),
        ({"model integer": wrong}, "integer weights"),
        ({"delayed": last_bit}, "injected delays"),
        ({"replay": "another digest"}, "fresh-process replay"),
    ],
)
def test_each_gate_sees_its_fault(faults: dict[str, Any], gate: str, model: Model) -> None:
    assert gate in failed(gates(model, **faults))


def test_a_nan_that_is_swallowed(model: Model) -> None:
    class Swallowing(Rig):
        def machine(self, model: Model | None = None, fill: int | None = None) -> Machine:
            integers = model is not None and model.checkpoint.kind == "integer"
            return super().machine(model if integers else None, fill)

    rig = Swallowing(model)
    results = run_gates(make_bench(rig, rig.machine(), 3, 4.8e12), [Level.FULL])
    (swallowed,) = [result for result in results if result.ok is False]
    assert swallowed.name == "NaN and infinity propagate"
    assert "leaves all logits finite" in swallowed.detail


def test_a_kernel_that_hangs_fails_the_gate(model: Model) -> None:
    def hang(*_: Any) -> Any:
        raise DeviceError("the kernel hung: SM 3")

    assert "hung" in gates(model, any=hang)["logits against the oracle"].detail


def test_a_hang_on_a_nan_is_no_report_of_it(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any) -> Any:
        raise DeviceError("the kernel hung: SM 3")

    rig = Rig(model)
    bench = make_bench(rig, rig.machine(), 3, 4.8e12)
    bench.logits()
    monkeypatch.setattr("amk.verify.gates.run_at", hang)
    (poisoned,) = (gate.run for gate in GATES if gate.name == "NaN and infinity propagate")
    with pytest.raises(GateError, match="hung"):
        poisoned(bench)


def test_the_oracle_is_close_in_both_precisions_and_causal(model: Model) -> None:
    oracle = Oracle(model.graph, model.checkpoint, "fp16")
    ids = [int(i) for i in np.random.default_rng(0).integers(0, 1003, 320)]
    long = oracle.logits(ids, (5, 40))  # fp32
    short = oracle.logits(ids[:41], (5, 40))  # fp64
    assert (long.dtype, short.dtype) == (np.float32, np.float64)
    assert relative_error(long, short) < 1e-4
    assert relative_error(np.full((1, 3), np.nan), np.ones((1, 3))) == float("inf")


def test_poisoned_and_integer_checkpoints(model: Model) -> None:
    name = model.graph.final_norm.name

    def poison(values: Any) -> None:
        values[0] = np.nan

    poisoned = changed(model, {name: poison})
    assert np.isnan(poisoned.checkpoint.fp32(name)[0])
    assert not np.isnan(model.checkpoint.fp32(name)).any()
    assert np.array_equal(
        poisoned.checkpoint.bf16(model.graph.embed.name), model.checkpoint.bf16(model.graph.embed.name)
    )
    integers = integer_model(model)
    values = {int(v) for v in np.unique(integers.checkpoint.bf16(model.graph.layers[0].q.weight.name))}
    assert values == {0, 0x3F80, 0xBF80}
    oracle = plain_oracle("fp16")(integers, [1, 2, 3], [2])
    got = run_at(Rig(model).machine(integers), [1, 2, 3], [2])
    assert relative_error(got, oracle) < 1e-5


def test_the_floor_counts_every_byte_once(model: Model) -> None:
    graph = model.graph
    matrices = sum(np.prod(ref.shape) for ref in graph.tensors() if len(ref.shape) == 2) - np.prod(graph.embed.shape)
    assert token_bytes(graph, "fp16", 0) == 2 * matrices
    assert token_bytes(graph, "fp32", 10) - token_bytes(graph, "fp32", 0) == 10 * 2 * 2 * 2 * 16 * 4
    assert floor_ms(graph, "fp16", 0, 1e9, 0) == pytest.approx(2 * matrices / 1e9 * 1e3)
    assert floor_ms(graph, "fp16", 0, 1e9, 1 << 40) == 0


def test_the_command(tmp_path: Path) -> None:
    import amk

    folder = save_toy(tmp_path / "m")
    artifact = amk.build(folder, gpu="h200", max_seq=100, random_weights=3, out=tmp_path / "a")
    run = CliRunner().invoke(cli, ["verify", str(artifact.path), "--device", "cpu", "--seed", "5"], prog_name="amk")
    assert run.exit_code == 0, run.output
    assert "pass  logits against the oracle" in run.output
    assert "n/a   canaries" in run.output
    assert "pass  fresh-process replay" in run.output
