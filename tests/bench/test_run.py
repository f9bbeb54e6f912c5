"""The benchmark from one end to the other, with the GPU played by fakes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from amk.bench import run
from amk.bench.ceiling import Ceiling, Setting
from amk.bench.measure import measure_latency
from amk.bench.nvml import Nvml
from amk.bench.report import text_of
from amk.bench.run import Request, run_bench
from amk.bench.start import Start, first_token_seconds
from amk.device import Device
from amk.runtime.session import Session
from tests.bench.fakes import FakeMachine, FakeReadings, artifact, graph

DEVICE = Device(0, "NVIDIA H200", "sm_90", 132, 232448, 60 << 20, 141 << 30, 4800.0, True, False)


class FakeGpu:
    device = DEVICE

    def __enter__(self) -> FakeGpu:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeNvml(FakeReadings):
    def __init__(self, _: int) -> None:
        super().__init__()

    def __enter__(self) -> FakeNvml:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def limits(self) -> dict[str, Any]:
        return {"driver": "580.1", "power_limit_w": 700.0}


class Vocabulary(FakeMachine):
    vocab = 512


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened to the machine, in order."""
    happened: list[str] = []

    @contextmanager
    def loaded(*_: object) -> Iterator[tuple[FakeMachine, Start]]:
        happened.append("loaded")
        yield Vocabulary(), Start(0.1, 1.5, 0.02, 32)
        happened.append("closed")

    quick = partial(measure_latency, min_seconds=0.0)
    monkeypatch.setattr(run, "measure_latency", quick)
    monkeypatch.setattr(run, "BenchGpu", FakeGpu)
    monkeypatch.setattr(run, "Nvml", FakeNvml)
    monkeypatch.setattr(run, "loaded", loaded)
    monkeypatch.setattr(run, "fill_cache", lambda *_: happened.append("filled"))
    monkeypatch.setattr(run, "measure_ceiling", lambda *_: Ceiling(1 << 20, (Setting(16384, 6, 4.5e12),)))
    monkeypatch.setattr("amk.bench.provenance.driver_version", lambda: (13, 0))
    monkeypatch.setattr(run, "has_torch", lambda: False)
    return happened


def test_whole_run(filled: list[str]) -> None:
    data = run_bench(artifact(), Request(positions=[0, 512], steps=64, methods=("cublas",), command="amk bench a"))
    assert filled == ["loaded", "filled", "closed"]
    assert [row["pos"] for row in data["positions"]] == [0, 512]
    assert all(row["ms"] == 1.0 and row["same_logits"] for row in data["positions"])
    source = data["provenance"]
    assert source["gpu"] == {
        "name": "NVIDIA H200",
        "arch": "sm_90",
        "sms": 132,
        "driver": "580.1",
        "power_limit_w": 700.0,
    }
    assert source["artifact"]["sha256"] == {"kernel.cubin": "c"}
    assert source["command"] == "amk bench a"
    assert "/some/where" not in json.dumps(data)
    assert "tiny on NVIDIA H200" in text_of(data)


class PromptMachine(FakeMachine):
    max_seq, vocab, slice_steps = 1024, 512, 8

    def reset(self, prompt_len: int) -> None:
        pass


def test_first_token_reuses_no_prompt() -> None:
    machine = PromptMachine(tokens=[[5]])
    assert first_token_seconds(Session(machine, graph()), 20) > 0  # type: ignore[arg-type]
    firsts = {launch.given[0] for launch in machine.launches if launch.start_pos == 0}
    assert len(firsts) == 7


def test_nvml_without_a_driver_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import pynvml

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    with Nvml() as nvml:
        assert nvml.joules() is None
        assert set(nvml.state().values()) == {None}
