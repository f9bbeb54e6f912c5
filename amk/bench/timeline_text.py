"""Where the time of a traced launch went: by lane and kind of task, by hand-off, and bytes over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from amk.bench.report import table
from amk.bench.timeline import I64, WAITED_US, Timeline
from amk.bench.timeline_layers import LayerRow, layer_rows
from amk.cost.rules import Key
from schedule_ir.codec import LANES
from schedule_ir.op import Lane

SLICES = 60
BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class LaneRow:
    """A kind of task: per token and SM, how many there are, how long they work and how long they wait."""

    lane: str
    label: str
    tasks: float
    work_us: float
    wait_us: float


@dataclass(frozen=True)
class HandOffRow:
    """A hand-off, mean over its occurrences (`times` per token). Microseconds.

    `wait_us` of a reader; `longest_us` of the reader that waits longest; `spread_us` from the first writer's end to the
    last one's; `hop_us` from there until readers that were waiting go on; `last` the SMs that were last, and how often.
    """

    mailbox: str
    reader: str
    writer: str
    times: float
    wait_us: float
    longest_us: float
    spread_us: float
    hop_us: float
    last: dict[int, float]


@dataclass(frozen=True)
class Summary:
    """A token of the timeline: its length, its parts, and what went on over it in slices of equal length."""

    token_us: float
    lanes: list[LaneRow]
    layer: list[LayerRow]
    hand_offs: list[HandOffRow]
    tb_per_s: list[float]
    ring_kib: list[float]

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    def text(self) -> str:
        """For a person."""
        low, mean, high = min(self.tb_per_s), sum(self.tb_per_s) / len(self.tb_per_s), max(self.tb_per_s)
        parts = [
            [f"{self.token_us:.1f} us per token with the timeline on (it costs some)"],
            ["Per token and SM, mean:", *table([LANE_HEADER, *map(_lane_cells, self.lanes)])],
            [LAYER_TITLE, *table([LAYER_HEADER, *map(_layer_cells, self.layer)])],
            ["Hand-offs:", *table([HAND_OFF_HEADER, *map(_hand_off_cells, self.hand_offs)])],
            [
                f"Bytes asked for over one token: {low:.2f} to {high:.2f} TB/s, mean {mean:.2f}",
                f"  |{bars(self.tb_per_s)}|",
            ],
            [
                f"Ring, asked for and not drained: up to {max(self.ring_kib):.0f} KiB per SM",
                f"  |{bars(self.ring_kib)}|",
            ],
        ]
        return "\n\n".join("\n".join(part) for part in parts)


LAYER_TITLE = "A layer, microseconds since its residual arrived (first, median and last of its SMs; mean of layers):"
LAYER_HEADER = ["lane", "task", "tasks", "ready", "median", "last", "end", "median", "last"]
LANE_HEADER = ["lane", "task", "tasks", "work us", "wait us"]
HAND_OFF_HEADER = ["mailbox", "written by", "read by", "times", "wait us", "longest", "spread", "hop", "last SMs"]


def _lane_cells(row: LaneRow) -> list[str]:
    return [row.lane, row.label, f"{row.tasks:.1f}", f"{row.work_us:.2f}", f"{row.wait_us:.2f}"]


def _layer_cells(row: LayerRow) -> list[str]:
    times = (row.ready.first, row.ready.middle, row.ready.last, row.end.first, row.end.middle, row.end.last)
    return [row.lane, row.label, f"{row.tasks:.1f}", *(f"{time:.2f}" for time in times)]


def _hand_off_cells(row: HandOffRow) -> list[str]:
    numbers = (row.wait_us, row.longest_us, row.spread_us, row.hop_us)
    last = ", ".join(f"{sm} ({100 * share:.0f}%)" for sm, share in row.last.items())
    return [row.mailbox, row.writer, row.reader, f"{row.times:.0f}", *(f"{value:.2f}" for value in numbers), last]


def bars(values: list[float]) -> str:
    """Numbers as a line of blocks, from zero to the largest."""
    top = max(values, default=0.0)
    return "".join(BARS[round((len(BARS) - 1) * max(0.0, value) / top)] if top > 0 else " " for value in values)


def summary_of(timeline: Timeline) -> Summary:
    """The summary of the complete steps of a timeline. Raises ValueError if there is none."""
    steps = timeline.steps
    if not steps:
        raise ValueError("the timeline holds no complete token; trace fewer steps")
    begins, ends = _bounds(timeline, steps[-1])
    edges = np.linspace(begins, ends, SLICES + 1)
    ring = timeline.ring_bytes(np.linspace(0.0, ends, round(ends / max(1e-9, edges[1] - edges[0])) + 1))
    return Summary(
        token_us=(ends - _bounds(timeline, steps[0])[0]) / len(steps),
        lanes=lane_rows(timeline),
        layer=layer_rows(timeline),
        hand_offs=hand_off_rows(timeline),
        tb_per_s=[float(value) / 1e6 for value in timeline.rate(edges)],
        ring_kib=[float(value) / 1024 for value in ring[-SLICES:]],
    )


def _bounds(timeline: Timeline, step: int) -> tuple[float, float]:
    """When the compute lanes begin and end a step."""
    mine = (timeline.step == step) & (timeline.lane == LANES.index(Lane.COMPUTE))
    return float(timeline.begin[mine].min()), float(timeline.end[mine].max())


def lane_rows(timeline: Timeline) -> list[LaneRow]:
    """Kinds of tasks by lane, those that take longest first."""
    inside = np.isin(timeline.step, list(timeline.steps))
    totals: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for index in np.flatnonzero(inside):
        total = totals[int(timeline.lane[index]), timeline.records.labels[int(timeline.record[index])]]
        waited = float(timeline.waited[index])
        total[0] += 1
        total[1] += float(timeline.end[index] - timeline.begin[index]) - waited
        total[2] += waited
    per = len(timeline.steps) * timeline.program.sms
    rows = [LaneRow(LANES[lane].value, label, *(x / per for x in total)) for (lane, label), total in totals.items()]
    order = [lane.value for lane in LANES]
    return sorted(rows, key=lambda row: (order.index(row.lane), -(row.work_us + row.wait_us)))


@dataclass(frozen=True)
class _Occurrence:
    """One hand-off of one step: who was last, and what its readers saw."""

    last_sm: int
    spread: float
    hop: float | None
    waits: list[float]


def hand_off_rows(timeline: Timeline) -> list[HandOffRow]:
    """Hand-offs by mailbox and reader, in the order of the mailboxes."""
    found: dict[tuple[str, str, str], list[_Occurrence]] = defaultdict(list)
    writers = _Writers(timeline)
    for (key, step), readers in timeline.common_waits().items():
        if step in timeline.steps and (writing := writers.of(key, step)) is not None:
            reader = timeline.records.variant(int(timeline.record[readers[0]])).op
            names = (timeline.records.mailbox(key[0]), reader, timeline.records.variant(writing.record).op)
            found[names].append(_occurrence(timeline, writing, readers))
    rows = [_hand_off_row(names, seen, len(timeline.steps)) for names, seen in found.items()]
    order = [buffer.name for buffer in timeline.program.buffers]
    return sorted(rows, key=lambda row: order.index(row.mailbox))


def _occurrence(timeline: Timeline, writing: _Writing, readers: I64) -> _Occurrence:
    waits = timeline.waited[readers]
    arrived = (timeline.begin[readers] + waits)[waits >= WAITED_US]
    hop = float(np.median(arrived)) - writing.last if len(arrived) else None
    return _Occurrence(writing.last_sm, writing.last - writing.first, hop, waits.tolist())


def _hand_off_row(names: tuple[str, str, str], seen: list[_Occurrence], steps: int) -> HandOffRow:
    mailbox, reader, writer = names
    hops = [one.hop for one in seen if one.hop is not None]
    last = Counter(one.last_sm for one in seen).most_common(3)
    return HandOffRow(
        mailbox, reader, writer, len(seen) / steps,
        wait_us=float(np.mean([wait for one in seen for wait in one.waits])),
        longest_us=float(np.mean([max(one.waits) for one in seen])),
        spread_us=float(np.mean([one.spread for one in seen])),
        hop_us=float(np.mean(hops)) if hops else 0.0,
        last={sm: count / len(seen) for sm, count in last},
    )  # fmt: skip


@dataclass(frozen=True)
class _Writing:
    """Who wrote some packets: when the first and the last writer was done, and where and what the last one was."""

    first: float
    last: float
    last_sm: int
    record: int


class _Writers:
    """Writers of packets by tag phase and step."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._tables: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for index, start, count, phase in self._writes():
            self._tables[phase, int(timeline.step[index])].append((start, start + count, index))
        self._arrays = {key: np.array(rows) for key, rows in self._tables.items()}

    def _writes(self) -> Iterator[tuple[int, int, int, int]]:
        t = self._timeline
        for index in np.flatnonzero(t.lane != 0):
            _, writes = t.records.hand_offs(int(t.record[index]), t.pos + int(t.step[index]))
            for start, count, phase in writes:
                yield int(index), start, count, phase

    def of(self, key: Key, step: int) -> _Writing | None:
        """The writers of the packets `key` in a step; None where the timeline has none."""
        start, count, phase = key
        rows = self._arrays.get((phase, step))
        if rows is None:
            return None
        events = rows[(rows[:, 0] < start + count) & (rows[:, 1] > start), 2]
        if not len(events):
            return None
        ends = self._timeline.end[events]
        last = events[int(ends.argmax())]
        return _Writing(
            float(ends.min()), float(ends.max()), int(self._timeline.sm[last]), int(self._timeline.record[last])
        )
