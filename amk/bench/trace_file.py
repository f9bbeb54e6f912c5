"""A timeline as a Chrome trace, for ui.perfetto.dev: a process per SM, a thread per lane, counters of the whole GPU.

Format: "Trace Event Format" (Chrome), JSON array form. Neighbouring tasks of a kind become one slice.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from amk.bench.timeline import Timeline
from schedule_ir.codec import LANES

COUNTER_US = 2.0
GPU = 1_000_000
"""Process id of the counters; SMs have their own numbers."""

Event = dict[str, Any]


def write_trace(timeline: Timeline, file: Path) -> None:
    """Write the trace to `file`; compressed if it ends in .gz, which Perfetto reads too."""
    opened: TextIO
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "wt", encoding="utf-8") as opened:
        opened.write("[\n")
        for index, event in enumerate(trace_events(timeline)):
            opened.write((",\n" if index else "") + json.dumps(event, separators=(",", ":")))
        opened.write("\n]\n")


def trace_events(timeline: Timeline) -> Iterator[Event]:
    """Names, slices, counters."""
    yield _meta("process_name", GPU, 0, "GPU")
    for sm in range(timeline.program.sms):
        yield _meta("process_name", sm, 0, f"SM {sm}")
        for number, lane in enumerate(LANES):
            yield _meta("thread_name", sm, number, lane.value)
    for first, last in runs(timeline):
        yield from _slices(timeline, first, last)
    yield from _counters(timeline)


def runs(timeline: Timeline) -> Iterator[tuple[int, int]]:
    """First and last event of each run of tasks with one label in a lane and step."""
    labels = np.array(timeline.records.labels)[timeline.record] if len(timeline.record) else np.array([])
    columns = (timeline.sm, timeline.lane, timeline.step, labels)
    changed = np.zeros(max(0, len(timeline.record) - 1), bool)
    for column in columns:
        changed |= column[1:] != column[:-1]
    begins = [0, *(np.flatnonzero(changed) + 1).tolist()]
    ends = [*(begin - 1 for begin in begins[1:]), len(timeline.record) - 1]
    if len(timeline.record):
        yield from zip(begins, ends, strict=True)


def _slices(timeline: Timeline, first: int, last: int) -> Iterator[Event]:
    """The run, and inside it the wait that it starts with."""
    where = {"pid": int(timeline.sm[first]), "tid": int(timeline.lane[first])}
    begin = float(timeline.begin[first])
    waited = timeline.waited[first : last + 1]
    facts = {
        "step": int(timeline.step[first]),
        "tasks": last - first + 1,
        "records": f"{timeline.record[first]}..{timeline.record[last]}",
        "waited_us": _us(float(waited.sum())),
    }
    label = timeline.records.labels[int(timeline.record[first])]
    yield {"ph": "X", "name": label, **where, **_span(begin, float(timeline.end[last])), "args": facts}
    if waited[0] > 0:
        yield {"ph": "X", "name": "wait", **where, **_span(begin, begin + float(waited[0]))}


def _counters(timeline: Timeline) -> Iterator[Event]:
    if not len(timeline.end):
        return
    edges = np.arange(0.0, float(timeline.end.max()) + COUNTER_US, COUNTER_US)
    rate, ring = timeline.rate(edges) / 1e6, timeline.ring_bytes(edges) / 1024
    for time, tb, kib in zip(edges.tolist(), rate.tolist(), ring.tolist(), strict=False):
        yield {"ph": "C", "name": "read TB/s", "pid": GPU, "ts": _us(time), "args": {"TB/s": round(tb, 3)}}
        yield {"ph": "C", "name": "ring KiB per SM", "pid": GPU, "ts": _us(time), "args": {"KiB": round(kib, 1)}}


def _meta(name: str, pid: int, tid: int, value: str) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {"name": value}}


def _span(begin: float, end: float) -> Event:
    return {"ts": _us(begin), "dur": _us(max(0.0, end - begin))}


def _us(value: float) -> float:
    """Microseconds to the nanosecond."""
    return round(value, 3)
