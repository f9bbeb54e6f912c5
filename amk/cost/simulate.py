"""Plays a plan: every SM's stream fills its ring at its share of the bandwidth, segments drain it as they may start.

Between two events everything is linear, so a segment is a handful of formulas. S are the bytes an SM has streamed, C
those it has consumed: S <= C + ring. A segment ends when its arithmetic is done and its last byte has arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

from amk.cost.calibration import Calibration
from amk.cost.plan import Made, Plan, Segment


@dataclass(frozen=True)
class Played:
    """Microseconds. `ends` of every segment; `waited` from the end of the segment before until it could start."""

    token_us: float
    ends: list[float]
    waited: list[float]


def play(plan: Plan, constants: Calibration, bandwidth: float) -> Played:
    """One token in the steady state: the second of two, so that the ring is as full as the token before leaves it.

    `bandwidth` in bytes per second, shared evenly; infinite for the chain of hand-offs alone.
    """
    player = _Player(plan, constants, bandwidth)
    player.token()
    begin = max(player.free)
    player.token()
    return Played(max(player.free) - begin, [end - begin for end in player.ends], player.waited)


class _Player:
    """Plain lists of numbers by SM or segment: this is scalar code, where they are faster than arrays."""

    def __init__(self, plan: Plan, constants: Calibration, bandwidth: float) -> None:
        self.plan, self.constants = plan, constants
        self.rate = bandwidth / plan.sms / 1e6  # bytes per microsecond and SM
        self.free = [0.0] * plan.sms  # when the compute lane is done with what it has
        self.ends = [0.0] * len(plan.segments)
        self.waited = [0.0] * len(plan.segments)
        self._starts = [0.0] * len(plan.segments)
        self._supplies = [0.0] * len(plan.segments)  # S - C at the start, less what the polled packets displace
        self._filled_at = [0.0] * plan.sms
        self._ahead = [float(plan.ring_bytes)] * plan.sms  # S - C
        self._ready: dict[int, float] = {}

    def token(self) -> None:
        """Play all segments once. Every SM starts when all have finished the token before."""
        self.free = [max(self.free) + self.constants.token_us] * self.plan.sms
        self._ready.clear()
        for index in self.plan.order:
            self._segment(index, self.plan.segments[index])

    def _segment(self, index: int, segment: Segment) -> None:
        k, sm = self.constants, segment.sm
        ready = max(map(self._available, segment.waits), default=0.0)
        began = self.free[sm]
        start = max(began, ready) + segment.packets * k.packet_ns / 1e3 + k.task_us(segment.op)
        self._fill(sm, start, 0)
        size = segment.tape_bytes + segment.kv_bytes
        self._starts[index] = start
        self._supplies[index] = self._ahead[sm] - segment.packets * k.stream_packet_bytes
        end = self._reached(segment, Made(index, size, segment.units, segment.blocks))
        self._fill(sm, end, size)
        self.free[sm] = self.ends[index] = end
        self.waited[index] = start - began

    def _reached(self, segment: Segment, made: Made) -> float:
        """When a segment is that far: its arithmetic is done and its bytes have come."""
        k, (index, size, units, blocks) = self.constants, made
        arithmetic = size / k.sm_gb_s / 1e3 + units * k.unit_us + self._attention_us(segment.op, blocks)
        missing = max(0.0, size - self._supplies[index])
        return self._starts[index] + max(arithmetic, missing / self.rate)

    def _available(self, wait: int) -> float:
        if wait not in self._ready:
            producers = self.plan.waits[wait].producers
            times = (self._reached(self.plan.segments[made.segment], made) for made in producers)
            self._ready[wait] = max(times, default=0.0) + self.constants.handoff_us
        return self._ready[wait]

    def _attention_us(self, op: str, blocks: int) -> float:
        """Warps take blocks in turn; the new position is a block of its own in the last split."""
        return -(-(blocks + (op == "attend")) // self.plan.warps) * self.constants.block_us

    def _fill(self, sm: int, now: float, consumed: int) -> None:
        """Let the stream run until `now`, with `consumed` bytes drained meanwhile; a full ring stops it."""
        streamed = self.rate * (now - self._filled_at[sm])
        self._ahead[sm] = min(self._ahead[sm] + streamed - consumed, self.plan.ring_bytes)
        self._filled_at[sm] = now
