"""The worker's side on a real little model: the ladder end to end against the cost model, without a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amk.emit import CompiledKernel
from amk.errors import DeviceError, RejectedProgramError
from amk.model.source import Model
from autoresearch.engine import Build, GpuEngine, ModelEngine
from autoresearch.errors import IMPROVED, InfrastructureError
from autoresearch.link import RefusedError
from autoresearch.rungs import Rungs
from autoresearch.spacer import NoSpacer, Spacer
from autoresearch.study import Study
from autoresearch.subject import Subject, make_subject
from autoresearch.supervisor import Supervisor
from schedule_ir import Program, encode
from schedule_ir.codec import to_json
from tests.autoresearch.helpers import settings
from tests.autoresearch.test_supervisor import Listed
from tests.autoresearch.toy import save_toy, toy_model, toy_program

RESOURCES = {"registers": 128, "stack_bytes": 0, "spill_bytes": 0}


class Ms:
    """A prediction."""

    def __init__(self, ms: float) -> None:
        self.ms_per_token, self.stream_ms, self.waits_us = ms, ms / 2, {"gemv": 3.0}


def predict(program: Program, pos: int) -> Ms:
    """More in flight is better; more positions take longer."""
    return Ms(1.0 - 0.03 * program.config["in_flight"] + 1e-4 * pos)


def compiled(program: Program) -> CompiledKernel:
    """Refuses as NVRTC would, for one setting."""
    if program.config["reduce_slots"] == 8:
        raise RejectedProgramError("NVRTC refused the generated source for sm_90: too much of everything")
    return CompiledKernel(b"cubin", "13.0", "", RESOURCES)


class InProcess:
    """A worker in this process: the same answers, JSON and all, without starting one."""

    size = 1
    one_device = True

    def __init__(self) -> None:
        self.identity = {"pid": -1, "start": 0}
        self._rungs = Rungs(ModelEngine(predict), compiled)

    def call(self, method: str, params: dict[str, Any], _: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(json.dumps(self._rungs.call(method, params), allow_nan=False))
        return answer

    def close(self) -> None:
        pass

    @contextmanager
    def worker(self) -> Iterator[InProcess]:
        yield InProcess()


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = save_toy(tmp_path_factory.mktemp("model"))
    return make_subject(folder, "h200", 100, "fp16", 7, None, "predicted")


def make(folder: Path, subject: Subject) -> Supervisor:
    return Supervisor(Study(folder), subject, settings(aa_loads=6), InProcess())


def test_the_whole_loop_without_a_gpu(subject: Subject, tmp_path: Path) -> None:
    made = make(tmp_path, subject)
    outcome = made.run(Listed({"in_flight": 5}, {"reduce_slots": 8}, {"stocked": 12, "ring_stages": 4}))
    assert outcome.exit_code == IMPROVED
    trials = list(made.study.history.trials.values())
    assert [t.verdict for t in trials[:3]] == ["baseline", "kept", "rejected"]
    assert trials[2].rung == "compile"
    assert all(pair["mode"] == "predicted" for pair in trials[1].pairs["confirm/1"].values())
    assert made.current.headline is not None
    assert made.current.headline["mode"] == "predicted"
    assert made.current.headline["timelines"]["after"]["predicted"] is True
    gates = {gate["name"]: gate["ok"] for gate in trials[1].passed["full gates"]["gates"]}
    assert gates["integer weights"] is gates["NaN and infinity propagate"] is gates["fresh-process replay"] is True
    assert gates["canaries, unmodified weights"] is None


def begun(subject: Subject, folder: Path, spec: dict[str, Any]) -> Rungs:
    rungs = Rungs(ModelEngine(predict), compiled)
    rungs.call(
        "begin", {"subject": subject.to_json(), "candidate": spec, "incumbent": None, "cache": str(folder), "seed": 1}
    )
    return rungs


def test_a_program_goes_the_same_way(subject: Subject, tmp_path: Path) -> None:
    model = toy_model(Path(subject.model))
    text = to_json(encode(toy_program(model, max_seq=100)))
    rungs = begun(subject, tmp_path, {"program": text})
    assert rungs.call("lower", {})["content"]
    assert rungs.call("validate", {})
    assert rungs.call("gates", {"full": False})["gates"][0]["ok"] is True


def test_a_broken_program_is_refused_with_a_witness(subject: Subject, tmp_path: Path) -> None:
    model = toy_model(Path(subject.model))
    tables = encode(toy_program(model, max_seq=100))
    records = tables.records.copy()
    records[-1, 1] += 32  # the last task reads elsewhere
    rungs = begun(subject, tmp_path, {"program": to_json(replace(tables, records=records))})
    with pytest.raises(RefusedError, match="rule") as refusal:
        rungs.call("validate", {})
    assert refusal.value.witness


def test_another_checkpoint_is_an_infrastructure_failure(subject: Subject, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="changed since the search began"):
        make(tmp_path, replace(subject, digest="another")).run(Listed())


def test_probe_and_energy(subject: Subject, tmp_path: Path) -> None:
    rungs = begun(subject, tmp_path, {"knobs": dict(subject.default)})
    assert rungs.call("probe", {"mode": "predicted"}) == {"device": "cost model"}
    assert rungs.call("energy", {}) == {"candidate": None, "incumbent": None}
    assert len(rungs.call("floors", {})["floors"]) == len(subject.workload)


class Rack:
    """Machines and spacers that are held, in the order in which they were loaded."""

    def __init__(self, room: int = 99) -> None:
        self.held: list[Any] = []
        self.room = room


class HeldMachine:
    """A machine that only lies in memory."""

    vocab = 100

    def __init__(self, rack: Rack, what: Any) -> None:
        if len(rack.held) >= rack.room:
            raise DeviceError("cuMemAlloc failed: out of memory")
        self.rack, self.what, self.runs, self.is_open = rack, what, what, True
        rack.held.append(what)

    def close(self) -> None:
        if self.is_open:
            self.rack.held.remove(self.what)
        self.is_open = False


class RackEngine(ModelEngine):
    """Needs machines, and notes where they lie."""

    needs_machine = True

    def __init__(self, rack: Rack) -> None:
        super().__init__(predict)
        self.rack, self.settled = rack, 0

    def spacer(self, share: float) -> Spacer:
        return HeldMachine(self.rack, share) if share else NoSpacer()

    def rig(self, build: Build, model: Model) -> Any:  # noqa: ARG002
        rack, name = self.rack, build.program.config["in_flight"]

        class Rig:
            def machine(self) -> HeldMachine:
                return HeldMachine(rack, name)

        return Rig()

    def settle(self, machine: Any) -> None:
        assert isinstance(machine, HeldMachine)
        self.settled += 1

    def joules_per_token(self, machine: Any, point: Any) -> float | None:  # noqa: ARG002
        assert machine.is_open
        return float(machine.runs)


class ExchangingEngine(RackEngine):
    """One whose kernels run over each other's weights."""

    def exchangeable(self, first: Build, second: Build) -> bool:
        return first.program.config["in_flight"] != second.program.config["in_flight"]

    def select(self, build: Build, machine: Any) -> None:
        machine.runs = build.program.config["in_flight"]


@pytest.fixture
def rack(monkeypatch: pytest.MonkeyPatch) -> Rack:
    monkeypatch.setattr("autoresearch.rungs.WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("autoresearch.rungs.REWARM_SECONDS", 0.0)
    return Rack()


@pytest.fixture
def facing(rack: Rack, subject: Subject, tmp_path: Path) -> Rungs:
    """in_flight 3 (the incumbent, A) against 6 (B)."""
    rungs = Rungs(RackEngine(rack), compiled)
    specs = [{"knobs": {**subject.default, "in_flight": value}} for value in (6, 3)]
    rungs.call(
        "begin",
        {"subject": subject.to_json(), "candidate": specs[0], "incumbent": specs[1], "cache": str(tmp_path), "seed": 1},
    )
    return rungs


def test_a_load_places_both_sides_anew(facing: Rungs, rack: Rack) -> None:
    facing.call("load", {"order": "BA", "shares": [0.25, 0.5]})
    assert rack.held == [0.25, 6, 0.5, 3]
    assert len(facing.call("block", {"order": "ABBA"})["samples"]) == 4
    facing.call("load", {"order": "AB", "shares": [0.125, 0.75]})
    assert rack.held == [0.125, 3, 0.75, 6]
    assert facing.call("energy", {}) == {"candidate": 6.0, "incumbent": 3.0}
    facing.call("against", {"incumbent": {"knobs": {**facing.subject.default, "in_flight": 4}}})
    facing.call("load", {"order": "AB", "shares": [0.125, 0.75]})
    assert rack.held == [0.125, 4, 0.75, 6]


def test_a_full_memory_does_without_spacers(facing: Rungs, rack: Rack) -> None:
    rack.room = 3
    facing.call("load", {"order": "AB", "shares": [0.25, 0.5]})
    assert rack.held == [3, 6]
    rack.room = 1
    with pytest.raises(DeviceError, match="out of memory"):
        facing.call("load", {"order": "AB", "shares": [0.25, 0.5]})


def test_energy_loads_what_is_not_loaded(facing: Rungs, rack: Rack) -> None:
    assert facing.call("energy", {}) == {"candidate": 6.0, "incumbent": 3.0}
    assert rack.held == [3, 6]


def test_sides_of_the_same_tables_share_what_is_loaded(rack: Rack, facing: Rungs) -> None:
    facing.engine = engine = ExchangingEngine(rack)
    facing.call("load", {"order": "BA", "shares": [0.25, 0.5]})
    assert (rack.held, engine.settled) == ([0.25, 6, 0.5], 1)
    assert len(facing.call("block", {"order": "ABBA"})["samples"]) == 4
    assert facing.call("energy", {}) == {"candidate": 6.0, "incumbent": 3.0}
    facing.call("against", {"incumbent": {"knobs": {**facing.subject.default, "in_flight": 6}}})
    assert facing.candidate.machine is None, "the machine that both had is closed"
    facing.call("load", {"order": "AB", "shares": [0.125, 0.75]})
    assert rack.held == [0.125, 6, 0.75, 6], "a schedule against itself is loaded twice"
    assert facing.call("energy", {}) == {"candidate": 6.0, "incumbent": 6.0}


def test_the_gpu_engine_exchanges_kernels_of_one_schedule(facing: Rungs) -> None:
    pytest.importorskip("cuda.bindings")
    three, six = facing.incumbent, facing.candidate
    engine = GpuEngine()
    builds = [Build(side.tables, side.program, cubin) for side, cubin in ((three, b"3"), (six, b"6"), (three, b"3"))]
    assert engine.exchangeable(builds[0], builds[1])
    assert not engine.exchangeable(builds[0], builds[2])
    other = facing._side({"knobs": {**facing.subject.default, "compute_warps": 4}})
    assert not engine.exchangeable(builds[0], Build(other.tables, other.program, b"4"))
