"""The clocks of a traced launch as one timeline: which task ran where, from when to when, how long it waited.

Every SM has a clock of its own, and they do not run alike: on an H200 some are 3 % behind others. They are put together
by the global timer, which is coarse, and then by what the schedule knows: SMs that poll the same packets and have to
wait see them arrive at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from amk.bench.trace_labels import Records
from amk.cost.rules import Key
from schedule_ir.codec import LANES
from schedule_ir.op import Lane
from schedule_ir.program import Program

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

WAITED_US = 0.3
"""A wait of at least this ended when packets arrived, not when the reader came."""

ALIGNMENTS = 3
"""Times that SMs are aligned: the medians with which they are get better."""

NEIGHBOURS = 4
"""Arrivals before and after one that tell how late a clock is there."""


@dataclass(frozen=True)
class Timeline:
    """Events as columns, sorted by SM, lane and time. Microseconds from the first event; `waited` lies in the task.

    `lane` indexes LANES; `record` the device table; the token of `step` is at position `pos` + step.
    """

    records: Records
    pos: int
    sm: I64
    lane: I64
    record: I64
    step: I64
    begin: F64
    waited: F64
    end: F64
    last_step: int

    @classmethod
    def of(
        cls, program: Program, events: I64, counts: I64, anchors: I64, milliseconds: float, pos: int = 0
    ) -> Timeline:
        """From int64 [sms, 3, events, 4] of record | step << 32, begin, begin + waited, end in SM clocks.

        `counts` [sms, 3] of the events are filled; `anchors` [sms, 3, 2] hold clock and global timer (ns) at the
        lane's start; `milliseconds` is what the launch took, which gives the clock rate.
        """
        filled = np.arange(events.shape[2]) < counts[:, :, None]
        sm, lane, _ = np.nonzero(filled)
        word, begin, ready, end = events[filled].T
        per_us = max(1e-9, float((end - anchors[sm, lane, 0]).max()) / (milliseconds * 1e3))
        since = anchors[:, :, 1] - anchors[:, :, 1].min()  # integers: floats of times since 1970 are too coarse
        starts = since / 1e3 - anchors[:, :, 0] / per_us
        offset = starts.mean(1)[sm]
        zero = float((begin / per_us + offset).min())
        raw = cls(
            Records(program), pos, sm, lane, word & 0xFFFFFFFF, word >> 32, begin / per_us + offset - zero,
            (ready - begin) / per_us, end / per_us + offset - zero, last_complete_step(events, counts),
        )  # fmt: skip
        return raw.aligned()

    @property
    def program(self) -> Program:
        """The schedule that ran."""
        return self.records.program

    @property
    def steps(self) -> range:
        """The complete steps; the first of several is left out, because its ring starts empty."""
        return range(1 if self.last_step > 0 else 0, self.last_step + 1)

    def aligned(self) -> Timeline:
        """With the SMs' clocks moved and stretched so that common arrivals coincide; durations stay as they are."""
        waits = [events[self.waited[events] >= WAITED_US] for events in self.common_waits().values()]
        made = self
        for _ in range(ALIGNMENTS):
            made = made._nearer([events for events in waits if len(events) > 1])
        return made

    def _nearer(self, waits: list[I64]) -> Timeline:
        """Each SM moved by what its arrivals differ from the median of all SMs that waited for the same packets."""
        arrived, begin = self.begin + self.waited, self.begin.copy()
        late = np.full(len(arrived), np.nan)
        for events in waits:
            late[events] = arrived[events] - np.median(arrived[events])
        for sm in range(self.program.sms):
            mine = self.sm == sm
            known = mine & ~np.isnan(late)
            if known.any():
                begin[mine] -= lateness(arrived[known], late[known], self.begin[mine])
        begin -= begin.min(initial=0.0)
        return replace(self, begin=begin, end=begin + (self.end - self.begin))

    def common_waits(self) -> dict[tuple[Key, int], I64]:
        """Events that poll the same packets of the same step: by (packets, step)."""
        groups: dict[tuple[Key, int], list[int]] = {}
        for index in np.flatnonzero(self.lane == LANES.index(Lane.COMPUTE)):
            step = int(self.step[index])
            reads, _ = self.records.hand_offs(int(self.record[index]), self.pos + step)
            for key in reads:
                groups.setdefault((key, step), []).append(int(index))
        return {key: np.array(events, np.int64) for key, events in groups.items()}

    def moved_bytes(self, drained: bool = False) -> F64:
        """Bytes that each event copies into the ring, or takes out of it."""
        of_lane = LANES.index(Lane.COMPUTE if drained else Lane.STREAM)
        amount = self.records.drained_bytes if drained else self.records.copied_bytes
        moved = np.zeros(len(self.record))
        for index in np.flatnonzero(self.lane == of_lane):
            moved[index] = amount(int(self.record[index]), self.pos + int(self.step[index]))
        return moved

    def rate(self, edges: F64) -> F64:
        """Bytes per microsecond copied between each two of `edges` (microseconds, evenly spaced)."""
        moved = self.moved_bytes()
        middles = (self.begin + self.waited + self.end) / 2
        return np.histogram(middles, edges, weights=moved)[0] / np.diff(edges)

    def ring_bytes(self, edges: F64) -> F64:
        """Bytes asked for and not drained yet, mean of the SMs, at the end of each interval."""
        issued = np.histogram(self.end, edges, weights=self.moved_bytes())[0]
        taken = np.histogram(self.end, edges, weights=self.moved_bytes(drained=True))[0]
        return np.cumsum(issued - taken) / self.program.sms


def lateness(times: F64, late: F64, at: F64) -> F64:
    """How late a clock is at the times `at` that was `late` at `times`: a line, and around it medians of neighbours."""
    order = np.argsort(times, kind="stable")
    times, late = times[order], late[order]
    drifts = len(times) > 2 * NEIGHBOURS and times[-1] > times[0]
    line = np.polyfit(times, late, 1) if drifts else np.array([np.median(late)])
    rest = late - np.polyval(line, times)
    near = [np.median(rest[max(0, i - NEIGHBOURS) : i + NEIGHBOURS + 1]) for i in range(len(rest))]
    result: F64 = np.polyval(line, at) + np.interp(at, times, near)
    return result


def last_complete_step(events: I64, counts: I64) -> int:
    """The last step that every lane has all of: a lane that is full may have lost the end of its last one."""
    last = []
    for lane_events, count in zip(events.reshape(-1, *events.shape[2:]), counts.reshape(-1).tolist(), strict=True):
        if count:
            last.append(int(lane_events[count - 1, 0] >> 32) - int(count == len(lane_events)))
    return min(last, default=-1)
