"""Timelines from clocks: aligned again, complete steps, who waited for whom, and the trace file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from amk.bench.timeline import Timeline, last_complete_step
from amk.bench.timeline_layers import layer_rows
from amk.bench.timeline_text import bars, hand_off_rows, lane_rows, summary_of
from amk.bench.trace_file import GPU, runs, trace_events, write_trace
from amk.bench.trace_labels import Records
from amk.gpus import lookup
from amk.lower import Knobs, lower
from schedule_ir.program import Program
from tests.bench.fakes import graph, program
from tests.bench.traced import HOP_US, SLOWEST, TASK_US, Player, Row, clocks

STEPS = 3
POS = 0


@pytest.fixture(scope="module")
def made() -> Program:
    return program()


@pytest.fixture(scope="module")
def rows(made: Program) -> list[Row]:
    return Player(made).play(STEPS)


@pytest.fixture(scope="module")
def timeline(made: Program, rows: list[Row]) -> Timeline:
    return Timeline.of(made, *clocks(made, rows, 512), POS)


def test_events_are_all_there(timeline: Timeline, rows: list[Row]) -> None:
    columns = zip(timeline.sm, timeline.lane, timeline.step, timeline.record, strict=True)
    assert [tuple(map(int, event)) for event in columns] == [row[:4] for row in rows]
    assert timeline.waited == pytest.approx([row[5] for row in rows], rel=0.05, abs=0.02)


def test_durations_are_kept_to_a_few_nanoseconds(timeline: Timeline, rows: list[Row]) -> None:
    """Times are not put through floats of nanoseconds since 1970, which have steps of a quarter of a microsecond."""
    took = np.array([row[6] - row[4] for row in rows])
    assert timeline.end - timeline.begin == pytest.approx(took, rel=0.05, abs=0.005)


def test_unrelated_clocks_are_put_together(timeline: Timeline, rows: list[Row]) -> None:
    truly = np.array([row[6] for row in rows])
    error = timeline.end - truly
    rate, offset = np.polyfit(truly, error, 1)  # of the SMs in the middle
    assert abs(rate) < SLOWEST
    assert np.abs(error - rate * truly - offset).max() < 0.2


def test_the_first_step_is_left_out(timeline: Timeline) -> None:
    assert timeline.steps == range(1, STEPS)


def test_a_full_lane_may_have_lost_the_end_of_its_step(made: Program, rows: list[Row]) -> None:
    longest = int(clocks(made, rows, 512)[1].max())
    for capacity, last in ((longest + 1, STEPS - 1), (longest, STEPS - 2), (longest // STEPS, -1)):
        events, counts, *_ = clocks(made, rows, capacity)
        assert last_complete_step(events, counts) == last


def test_no_complete_step(made: Program, rows: list[Row]) -> None:
    short = Timeline.of(made, *clocks(made, rows, 3), POS)
    with pytest.raises(ValueError, match="trace fewer steps"):
        summary_of(short)


def test_hand_offs_say_who_was_waited_for(timeline: Timeline) -> None:
    found = {(row.mailbox, row.writer, row.reader): row for row in hand_off_rows(timeline)}
    assert set(found) == {
        ("qkv", "publish", "attend"), ("attention", "attend", "gather"), ("o", "publish", "add_norm"),
        ("mlp", "publish", "gather"), ("down", "publish", "add_norm"), ("best", "publish_best", "sample"),
    }  # fmt: skip
    assert found["mlp", "publish", "gather"].times == 2  # layers
    for row in found.values():
        assert row.hop_us == pytest.approx(HOP_US, abs=0.25)
        assert row.wait_us <= row.longest_us
        assert sum(row.last.values()) <= 1.001


def test_lanes_add_up(made: Program, timeline: Timeline, rows: list[Row]) -> None:
    summed: dict[str, float] = {}
    for row in lane_rows(timeline):
        summed[row.lane] = summed.get(row.lane, 0.0) + row.work_us
    tasks = {lane.value: sum(row[1] == index and row[2] == 1 for row in rows) for index, lane in enumerate(TASK_US)}
    for lane, us in TASK_US.items():
        assert summed[lane.value] == pytest.approx(tasks[lane.value] * us / made.sms, rel=0.05)
    assert {"multiply gate_up", "attend <- qkv", "copy K/V", "publish -> mlp", "add_norm <- o"} <= {
        row.label for row in lane_rows(timeline)
    }


def test_a_layer_from_residual_to_residual(timeline: Timeline) -> None:
    rows = {(row.lane, row.label): row for row in layer_rows(timeline)}
    order = [
        ("compute", "add_norm <- down"), ("epilogue", "publish -> qkv"), ("compute", "attend <- qkv"),
        ("compute", "gather <- attention"), ("epilogue", "publish -> o"), ("compute", "add_norm <- o"),
        ("epilogue", "publish -> mlp"), ("compute", "gather <- mlp"), ("epilogue", "publish -> down"),
    ]  # fmt: skip
    assert [kind for kind in rows if kind in order] == order, "in the order of the chain"
    taken, sent = rows["compute", "add_norm <- down"], rows["epilogue", "publish -> down"]
    assert taken.ready.middle == pytest.approx(0, abs=1e-6)
    assert taken.tasks == timeline.program.sms
    for row in rows.values():
        assert row.ready.first <= row.ready.middle <= row.ready.last
        assert row.end.first <= row.end.middle <= row.end.last
    hops = sent.end.last + HOP_US  # until the next layer's residual arrives, and all was counted
    assert hops > 6 * HOP_US
    assert not any(row.end.last > hops + 0.3 for row in rows.values())


def test_no_layer_between_two_residuals() -> None:
    made = lower(graph(num_hidden_layers=1), lookup("h200").as_target(), 64)
    single = Timeline.of(made, *clocks(made, Player(made).play(2), 512), POS)
    assert layer_rows(single) == []
    assert "A layer" in summary_of(single).text()


def test_pieces_of_a_unit_are_multiplications_like_others() -> None:
    made = lower(graph(), lookup("h200").as_target(), 64, knobs=Knobs(down_pieces=3))
    records = Records(made)
    ops = {
        records.variant(record).op: (label, records.drained_bytes(record, 0))
        for record, label in enumerate(records.labels)
    }
    assert ops["gemv_park"] == ("multiply down", 6 * 512)  # 16 k-steps in pieces of 6, 6 and 4
    assert ops["gemv_resume"] == ("multiply down", 4 * 512)
    assert ops["append"] == ("append", 0)


def test_bytes_over_time(made: Program, timeline: Timeline) -> None:
    edges = np.linspace(0, float(timeline.end.max()) + 1, 50)
    tape = sum(buffer.size * 512 for buffer in made.buffers if buffer.name.startswith("tape."))
    copied = (timeline.rate(edges) * np.diff(edges)).sum()
    assert copied == pytest.approx(STEPS * tape + 2 * 2 * 1024 * (0 + 1 + 1))  # a block of 16 positions from step 1 on
    ring = timeline.ring_bytes(edges)
    assert ring.max() > 0
    assert ring[-1] == pytest.approx(0)


def test_summary_text(timeline: Timeline) -> None:
    summary = summary_of(timeline)
    text = summary.text()
    assert "Hand-offs:" in text
    assert "multiply gate_up" in text
    assert len(summary.tb_per_s) == len(summary.ring_kib) == 60
    assert summary.token_us == pytest.approx(float(timeline.end.max()) / STEPS, rel=0.2)
    json.dumps(summary.as_dict())


def test_bars() -> None:
    assert bars([0, 4, 8]) == " ▄█"
    assert bars([0, 0]) == "  "


def test_runs_cover_every_event_once(timeline: Timeline) -> None:
    covered = [index for first, last in runs(timeline) for index in range(first, last + 1)]
    assert covered == list(range(len(timeline.record)))


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_trace_file(timeline: Timeline, tmp_path: Path, name: str) -> None:
    write_trace(timeline, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert events == list(trace_events(timeline))
    slices = [event for event in events if event["ph"] == "X"]
    assert sum(event["args"]["tasks"] for event in slices if event["name"] != "wait") == len(timeline.record)
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in slices)
    assert {event["pid"] for event in events if event["ph"] == "C"} == {GPU}
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
        "stream",
        "compute",
        "epilogue",
    }
