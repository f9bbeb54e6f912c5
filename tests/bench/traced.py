"""A launch played task by task, and the clocks that a GPU would have recorded of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from amk.bench.trace_labels import Records
from schedule_ir.codec import LANES
from schedule_ir.op import Lane
from schedule_ir.program import Program

HOP_US = 1.0
TASK_US = {Lane.STREAM: 0.3, Lane.COMPUTE: 0.5, Lane.EPILOGUE: 0.2}
CLOCK_PER_US = 1500
TIMER_NS = 1024
"""The global timer moves in steps of this."""

SLOWEST = 0.03
"""What the slowest SM's clock lacks."""

SINCE_1970_NS = 1_796_000_000_000_000_000
"""What it counts: in microseconds, a float of that size has steps of 0.25."""

Row = tuple[int, int, int, int, float, float, float]  # sm, lane, step, record, begin, waited, end


@dataclass
class Player:
    """Every task takes the time of its lane; packets arrive HOP_US after the task that writes them."""

    program: Program
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = Records(self.program)
        self.free: dict[tuple[int, int], float] = defaultdict(float)
        self.arrival: dict[tuple[int, int, int], float] = {}  # packet, phase, step
        self.reduced: dict[int, list[float]] = defaultdict(list)

    def play(self, steps: int) -> list[Row]:
        for step in range(steps):
            for end in self.reduced.values():
                end.clear()
            waiting = [self._lane(sm, lane, step) for sm in range(self.program.sms) for lane in range(3)]
            while waiting:
                waiting = [lane for lane in waiting if next(lane, None) is not None]
        return sorted(self.rows, key=lambda row: (row[0], row[1], row[4]))

    def _lane(self, sm: int, lane: int, step: int) -> Iterator[bool]:
        """Yields until the lane has played its step."""
        taken = 0
        for record in self._records_of(sm, lane):
            variant = self.records.variant(record)
            reads, writes = self.records.hand_offs(record, step)
            packets = [(p, phase, step) for start, count, phase in reads for p in range(start, start + count)]
            while not all(packet in self.arrival for packet in packets):
                yield True
            while variant.spec.reduce_slots < 0 and len(self.reduced[sm]) <= taken:
                yield True
            ready = max((self.arrival[packet] for packet in packets), default=0.0)
            if variant.spec.reduce_slots < 0:
                ready, taken = max(ready, self.reduced[sm][taken]), taken + 1
            end = self._play(sm, lane, step, record, ready)
            if variant.spec.reduce_slots > 0:
                self.reduced[sm].append(end)
            for start, count, phase in writes:
                self.arrival |= {(p, phase, step): end + HOP_US for p in range(start, start + count)}

    def _play(self, sm: int, lane: int, step: int, record: int, ready: float) -> float:
        begin = self.free[sm, lane]
        waited = max(0.0, ready - begin)
        end = begin + waited + TASK_US[LANES[lane]]
        self.free[sm, lane] = end
        self.rows.append((sm, lane, step, record, begin, waited, end))
        return end

    def _records_of(self, sm: int, lane: int) -> list[int]:
        sizes = [
            sum(len(self.program.lanes.get((s, each, section), ())) for section in ("body", "head"))
            for s in range(self.program.sms)
            for each in LANES
        ]
        place = 3 * sm + lane
        return list(range(sum(sizes[:place]), sum(sizes[: place + 1])))


Arrays = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64], float]


def clocks(program: Program, rows: list[Row], capacity: int) -> Arrays:
    """(events, counts, anchors, milliseconds) as amk.runtime.cuda.trace.collect gives them.

    SM clocks are unrelated, and some run slower.
    """
    skew = np.random.default_rng(0).integers(1 << 20, 1 << 40, program.sms)
    rate = CLOCK_PER_US * (1 - SLOWEST * np.random.default_rng(2).random(program.sms))
    events = np.zeros((program.sms, 3, capacity, 4), np.int64)
    counts = np.zeros((program.sms, 3), np.int64)
    for sm, lane, step, record, begin, waited, end in rows:
        if counts[sm, lane] < capacity:
            times = np.round(np.array([begin, begin + waited, end]) * rate[sm]).astype(np.int64) + skew[sm]
            events[sm, lane, counts[sm, lane]] = [step << 32 | record, *times]
            counts[sm, lane] += 1
    anchors = np.zeros((program.sms, 3, 2), np.int64)
    started = np.random.default_rng(1).integers(0, 5000, program.sms)  # ns after the launch
    for sm in range(program.sms):
        clock = int(skew[sm]) - int(started[sm]) * CLOCK_PER_US // 1000
        anchors[sm, :] = clock, (SINCE_1970_NS - started[sm]) // TIMER_NS * TIMER_NS
    return events, counts, anchors, max(row[6] + started[row[0]] / 1e3 for row in rows) / 1e3
