"""Latency, energy and work: what the numbers in a result mean."""

from __future__ import annotations

import math

import pytest

from amk.bench.energy import Energy, Sample, energy_of
from amk.bench.measure import MIN_LAUNCHES, WARM_UP, measure_latency
from amk.bench.work import kv_row_bytes, work_of
from amk.gpus import lookup
from amk.lower import lower
from amk.model.walker import walk
from tests.bench.fakes import FakeMachine, FakeReadings, NoReadings, program
from tests.gpu.shapes import CONFIGS


def test_median_and_spread_are_of_the_launches_after_warming_up() -> None:
    machine = FakeMachine(times=[640.0, 640.0, *[64.0] * 8, 128.0, 64.0, 64.0])
    latency = measure_latency(machine, NoReadings(), pos=16, steps=64, token=3, min_seconds=0)
    assert len(latency.launch_ms) == MIN_LAUNCHES
    assert latency.ms == 1.0
    assert latency.spread == 1.0
    assert latency.energy is None
    assert {(launch.start_pos, tuple(launch.given), launch.steps) for launch in machine.launches} == {(16, (3,), 64)}
    assert [launch.want_logits for launch in machine.launches] == [False] * (WARM_UP + MIN_LAUNCHES) + [True, True]


def test_a_repeat_is_the_same() -> None:
    latency = measure_latency(FakeMachine(), FakeReadings(), 0, 64, min_seconds=0)
    assert latency.same_tokens
    assert latency.same_logits
    assert latency.state == {"sm_mhz": 1980}


@pytest.mark.parametrize("machine", [FakeMachine(logits=[0.5, 0.25]), FakeMachine(logits=[0.0, -0.0])])
def test_a_repeat_with_other_bits(machine: FakeMachine) -> None:
    latency = measure_latency(machine, NoReadings(), 0, 64, min_seconds=0)
    assert latency.same_tokens
    assert not latency.same_logits


def test_a_repeat_with_other_tokens() -> None:
    latency = measure_latency(FakeMachine(tokens=[[1, 2], [1, 3]]), NoReadings(), 0, 64, min_seconds=0)
    assert not latency.same_tokens
    assert not latency.same_logits


def test_energy_is_taken_where_the_counter_moves() -> None:
    readings = [(0.0, 5, 0), (0.1, 5, 10), (0.2, 9, 20), (0.3, 9, 30), (0.4, 15, 40), (0.5, 15, 50)]
    samples = [Sample(*reading) for reading in readings]
    assert energy_of(samples) == Energy(joules_per_token=6 / 20, watts=pytest.approx(6 / 0.2))


@pytest.mark.parametrize("joules", [[], [5, 5, 5], [5, 5, 9]])
def test_no_energy_from_less_than_two_moves(joules: list[float]) -> None:
    assert energy_of([Sample(0.1 * i, value, i) for i, value in enumerate(joules)]) is None


def test_work_counts_weights_once_and_no_padding() -> None:
    # q, k, v, o, gate, up, down per layer; the tied head serves as embedding
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 256
    made = program()
    assert work_of(made, 0).weights == 2 * (2 * layer + 512 * 64)
    assert kv_row_bytes(made) == 2 * 2 * 2 * 16 * 2
    assert work_of(made, 100, 65).kv == 132 * kv_row_bytes(made)


def test_work_of_padded_sizes() -> None:
    layer = 64 * (3 * 40 + 2 * 40) + 64 * 3 * 40 + 3 * 64 * 200
    made = program(
        intermediate_size=200, vocab_size=509, num_attention_heads=3, num_key_value_heads=1, head_dim=40
    )  # fmt: skip
    assert work_of(made, 0).weights == 2 * (2 * layer + 509 * 64)
    assert kv_row_bytes(made) == 2 * 2 * 40 * 2


def test_bands_of_a_matrix_are_counted_once() -> None:
    """Published sizes on 132 SMs: q/k/v, o and down lie in units of 16 rows and of 8."""
    for name, total in (("llama-1b", 1_235_746_816), ("llama-3b", 3_212_574_720)):
        graph = walk(CONFIGS[name], None)
        made = lower(graph, lookup("h200").as_target(), 128)
        assert any(tiles.first_row for tiles in made.tiles)
        matrices = (ref for ref in graph.tensors() if len(ref.shape) == 2)
        assert work_of(made, 0).weights == 2 * sum(math.prod(ref.shape) for ref in matrices) == 2 * total


def test_percent_of_a_bandwidth() -> None:
    work = work_of(program(), 0)
    assert work.percent_of(work.total * 1e3, 2.0) == pytest.approx(50.0)
    assert work.floor_ms(work.total * 1e3) == pytest.approx(1.0)
