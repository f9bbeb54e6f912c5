"""The cost model: what it reads from a schedule, its arithmetic on plans made by hand, and its error where measured."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from amk.cost import StuckPlanError, load, plan_of, predict
from amk.cost.calibration import fitted_on, measured_knobs, measured_points, of_constants
from amk.cost.plan import Made, Plan, Segment, Wait
from amk.cost.simulate import play
from amk.gpus import lookup
from amk.lower import Knobs, lower
from amk.model.walker import walk
from schedule_ir import Program, Section
from schedule_ir.layout import kv_block_bytes
from schedule_ir.op import Lane
from tests.bench.fakes import graph, program

SHAPES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent.parent / "benchmarks/shapes.json").read_text())
COMMON = {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "max_position_embeddings": 131072}
BOUND = 0.10
FREE = of_constants(dict.fromkeys(vars(load()), 0.0) | {"sm_gb_s": 1e6})
"""No cost but bytes: an SM drains its ring at 1 PB/s."""

FIXED = of_constants({
    "handoff_us": 0.81, "packet_ns": 0.344, "stream_packet_bytes": 31.9, "sm_gb_s": 98.1, "unit_us": 0.0514,
    "block_us": 0.604, "attend_us": 1.13, "combine_us": 0.225, "token_us": 3.35,
})  # fmt: skip
"""For what is asked of the simulation, whatever a fit says: some GPU's constants."""


def alone(*segments: Segment, ring_bytes: int = 100, waits: tuple[Wait, ...] = (), sms: int = 1) -> Plan:
    return Plan(sms, ring_bytes, 8, list(segments), list(waits), list(range(len(segments))))


def work(size: int, sm: int = 0, waits: tuple[int, ...] = (), **more: int) -> Segment:
    return Segment(sm, "gather", "box", waits, tape_bytes=size, **more)


def after(*sizes: tuple[int, int]) -> tuple[Wait, ...]:
    """One wait, for segments that have drained so many bytes."""
    return (Wait((0, 1, 0), tuple(Made(segment, size, 0, 0) for segment, size in sizes)),)


# What is read from a schedule


def test_plan_has_the_bytes_of_the_schedule() -> None:
    made = program()
    plan = plan_of(made, 100)
    tapes = sum(buffer.size * 512 for buffer in made.buffers if buffer.name.startswith("tape."))
    assert sum(segment.tape_bytes for segment in plan.segments) == tapes
    # 100 positions are 7 blocks; the second split has the 36 positions after the first 64
    assert sum(segment.kv_bytes for segment in plan.segments) == 7 * 2 * 2 * kv_block_bytes(made.config)
    assert sum(segment.blocks for segment in plan.segments) == 7 * 2 * 2


def test_plan_has_the_hand_offs_of_the_schedule() -> None:
    plan = plan_of(program(), 0)
    found = {(segment.source, segment.op) for segment in plan.segments if segment.waits}
    assert found == {
        ("qkv", "attend"), ("attention", "gather"), ("o", "add_norm"), ("mlp", "gather"), ("down", "add_norm"),
        ("best", "sample"),
    }  # fmt: skip
    assert ("partial", "combine") in {(segment.source, segment.op) for segment in plan_of(program(), 100).segments}


def test_every_hand_off_has_producers_that_come_first() -> None:
    plan = plan_of(program(), 100)
    place = {segment: index for index, segment in enumerate(plan.order)}
    assert len(place) == len(plan.segments)
    for index, segment in enumerate(plan.segments):
        for wait in segment.waits:
            assert plan.waits[wait].producers
            assert all(place[made.segment] < place[index] for made in plan.waits[wait].producers)


PIECES: dict[str, Any] = {"num_hidden_layers": 1, "intermediate_size": 4096}
"""Of which 32 SMs have 16 units of gate and up each."""


def in_pieces(count: int) -> Program:
    return lower(graph(**PIECES), replace(lookup("h200").as_target(), sms=32), 1024, knobs=Knobs(down_pieces=count))


def test_a_piece_of_down_waits_for_its_rows_only() -> None:
    plan = plan_of(in_pieces(4), 0)
    waits = [segment.waits for segment in plan.segments if segment.source == "mlp"]
    gathers = [plan.waits[wait] for (wait,) in dict.fromkeys(waits)]
    assert [wait.key[1] for wait in gathers] == [1024] * 4
    for piece, wait in enumerate(gathers):
        assert len(wait.producers) == 32
        assert {made.units for made in wait.producers} == {4 * (piece + 1)}
    whole = plan_of(in_pieces(1), 0)
    assert sum(s.units for s in plan.segments) == sum(s.units for s in whole.segments) + 3 * 4  # 4 units of down


def test_pieces_take_the_last_rows_off_the_chain() -> None:
    whole, pieces = (predict(in_pieces(count), 0, FIXED) for count in (1, 4))
    assert pieces.waits_us["mlp -> gather"] < 0.7 * whole.waits_us["mlp -> gather"]
    assert pieces.chain_ms < whole.chain_ms
    assert pieces.weight_bytes == whole.weight_bytes


def test_a_schedule_that_waits_for_itself_is_stuck() -> None:
    made = program()
    key = (0, Lane.COMPUTE, Section.BODY)
    with pytest.raises(StuckPlanError, match="SM 0 waits for ever"):
        plan_of(replace(made, lanes={**made.lanes, key: made.lanes[key][::-1]}), 0)


# Arithmetic


def test_a_stream_alone_takes_its_bytes_over_the_bandwidth() -> None:
    played = play(alone(work(300), work(700)), FREE, bandwidth=1e6)
    assert played.token_us == pytest.approx(1000)


def test_sms_share_the_bandwidth() -> None:
    played = play(alone(work(500), work(250, sm=1), sms=2), FREE, bandwidth=1e6)
    assert played.token_us == pytest.approx(1000)


def test_a_ring_hides_a_wait_as_far_as_it_reaches() -> None:
    # The reader waits 300 us, in which the ring takes 100 bytes, one per us: 200 us are not hidden.
    plan = alone(work(500), work(500, waits=(0,)), waits=after((0, 500)))
    assert play(plan, replace(FREE, handoff_us=300.0), 1e6).token_us == pytest.approx(1200)
    assert play(replace(plan, ring_bytes=300), replace(FREE, handoff_us=300.0), 1e6).token_us == pytest.approx(1000)


def test_a_hand_off_waits_for_its_slowest_producer() -> None:
    plan = alone(work(100), work(400, sm=1), work(0, waits=(0,)), sms=2, waits=after((0, 100), (1, 400)))
    # between tokens the ring of the second SM fills with 100 of its 400 bytes
    played = play(plan, replace(FREE, handoff_us=7.0, token_us=200.0), 2e6)
    assert played.waited[2] == pytest.approx(300 + 7, abs=1)


def test_a_hand_off_waits_for_what_it_needs_of_a_segment() -> None:
    """The first 150 bytes: 100 that the ring has, and 50 more; with units, their time."""
    plan = alone(work(400, units=4), work(0, sm=1, waits=(0,)), sms=2, waits=after((0, 150)))
    played = play(plan, replace(FREE, handoff_us=7.0, token_us=200.0), 2e6)
    assert played.waited[1] == pytest.approx(50 + 7, abs=1)
    two = replace(plan, waits=[Wait((0, 1, 0), (Made(0, 0, 2, 0),))])
    played = play(two, replace(FREE, unit_us=90.0, token_us=200.0), 2e6)
    assert played.waited[1] == pytest.approx(2 * 90, abs=1)


def test_attention_runs_in_rounds_of_warps() -> None:
    segment = Segment(0, "attend", "qkv", (), blocks=15)
    constants = replace(FREE, block_us=3.0, attend_us=10.0)
    assert play(alone(segment), constants, 1e6).token_us == pytest.approx(10 + 2 * 3)  # 15 blocks and the new row
    assert play(alone(replace(segment, blocks=16)), constants, 1e6).token_us == pytest.approx(10 + 3 * 3)


# The whole prediction


def test_prediction_explains_itself() -> None:
    prediction = predict(program(), 100)
    text = prediction.text()
    assert f"{prediction.ms_per_token:.3f} ms/token at position 100" in text
    assert fitted_on() in text
    for reason in ("stream", "chain", "imbalance", "waits", "o -> add_norm"):
        assert reason in text
    assert prediction.ms_per_token >= max(prediction.stream_ms, prediction.chain_ms) * 0.999
    assert prediction.imbalance >= 1


def test_more_positions_take_longer() -> None:
    made = program(4096)
    times = [predict(made, pos).ms_per_token for pos in (0, 100, 1000, 4000)]
    assert times == sorted(times)


@cache
def schedule(shape: str, knobs: Knobs) -> Program:
    config = COMMON | SHAPES[shape] | {"model_type": "llama"}
    return lower(walk(config, None), lookup("h200").as_target(), 32832, knobs=knobs)


TESTED = [p for p in measured_points() if p["pos"] == 0 or (p["shape"], p["pos"]) == ("smollm2-135m", 4096)]
"""Planning a large shape takes seconds; benchmarks/fit_cost.py reports all points."""


@pytest.mark.parametrize("point", TESTED, ids=lambda point: f"{point['shape']}@{point['pos']}")
def test_within_ten_percent_of_what_was_measured(point: dict[str, Any]) -> None:
    """With the knobs of the measurement. After a change of the kernel or the lowering: benchmarks/run_h200.py, then
    benchmarks/fit_cost.py."""
    made = schedule(point["shape"], Knobs(**measured_knobs(point)))
    predicted = predict(made, point["pos"] + point["steps"] // 2).ms_per_token
    assert predicted == pytest.approx(point["ms"], rel=BOUND)
