"""What a token has to go through, from a Program at a position: segments of work and the hand-offs between them.

A segment is a run of compute tasks of an SM that starts where it has to wait for packets. Everything is read from the
op registry (which packets a task reads and writes, which bytes it copies), so that a new op needs nothing here.

Packets are there when the unit behind them is, not when its segment ends: the first units of a matrix may feed others
while the last are on their way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from amk.cost.rules import Key, Rules
from schedule_ir.layout import kv_block_bytes
from schedule_ir.op import Access, Lane
from schedule_ir.program import Program, Task, Variant


@dataclass
class Segment:
    """Work of one SM after one wait. Bytes come through the ring; `blocks` are K/V blocks that are attended to.

    `units` are multiplications of a weight unit, or of a part of one.

    `waits` are ids of `Plan.waits`, `packets` how many packets are polled, `op` the task that waits, `source` the
    mailbox that it waits for ("" for none).
    """

    sm: int
    op: str
    source: str
    waits: tuple[int, ...]
    packets: int = 0
    tape_bytes: int = 0
    kv_bytes: int = 0
    units: int = 0
    blocks: int = 0


class Made(NamedTuple):
    """How far `segment` has to be for a result: so many bytes drained, weight units and K/V blocks done."""

    segment: int
    size: int
    units: int
    blocks: int


@dataclass
class Wait:
    """A hand-off: the packets `key` are all there once the segments of `producers` are all that far."""

    key: Key
    producers: tuple[Made, ...] = ()


@dataclass
class Traffic:
    """Packets that the tasks of an op write to a mailbox or poll in it, per token; `sms` are those that do."""

    tasks: int = 0
    packets: int = 0
    sms: set[int] = field(default_factory=set)


Side = tuple[str, str, bool]
"""A mailbox, an op, and whether the op writes to it."""


@dataclass
class Plan:
    """Segments in an order in which each comes after those it waits for, and who uses which mailbox."""

    sms: int
    ring_bytes: int
    warps: int
    segments: list[Segment]
    waits: list[Wait]
    order: list[int]
    traffic: dict[Side, Traffic] = field(default_factory=dict)

    def sm_bytes(self) -> npt.NDArray[np.float64]:
        """Bytes through the ring of each SM."""
        totals = np.zeros(self.sms)
        for segment in self.segments:
            totals[segment.sm] += segment.tape_bytes + segment.kv_bytes
        return totals


class StuckPlanError(ValueError):
    """The program waits for packets that nothing before them publishes; the validator says which."""


def plan_of(program: Program, pos: int) -> Plan:
    """The plan of the token at `pos`, head included. Raises StuckPlanError for a schedule that cannot run."""
    return _Planner(program, pos).run()


@dataclass
class _Lane:
    """Segments of an SM while they are collected; `reductions` are the results that the epilogue has to take."""

    segments: list[int] = field(default_factory=list)
    reductions: list[Made] = field(default_factory=list)


class _Planner:
    def __init__(self, program: Program, pos: int) -> None:
        self.program, self.rules = program, Rules(program, pos)
        self.segments: list[Segment] = []
        self.waits: list[Wait] = []
        self.traffic: dict[Side, Traffic] = defaultdict(Traffic)
        self._wait_ids: dict[Key, int] = {}
        self._writers: dict[int, list[tuple[int, int, Made]]] = defaultdict(list)  # phase -> (start, end, by what)

    def run(self) -> Plan:
        lanes = [self._collect(sm) for sm in range(self.program.sms)]
        self._resolve()
        config = self.program.config
        ring = config["slot_bytes"] * config["ring_stages"]
        order = _order(self.segments, self.waits, lanes)
        return Plan(
            self.program.sms, ring, config["compute_warps"], self.segments, self.waits, order, dict(self.traffic)
        )

    def _collect(self, sm: int) -> list[int]:
        lane = _Lane()
        copies = self._copies(sm)
        for task, variant in self.rules.tasks(sm, Lane.COMPUTE):
            self._compute(sm, lane, task, variant, copies)
        taken = 0
        for task, variant in self.rules.tasks(sm, Lane.EPILOGUE):
            taken += variant.spec.reduce_slots < 0
            made = lane.reductions[taken - 1] if taken else Made(lane.segments[0], 0, 0, 0)
            self._note(sm, variant.op, self.rules.packets(task, variant), made)
        return lane.segments

    def _compute(self, sm: int, lane: _Lane, task: Task, variant: Variant, copies: Iterator[tuple[bool, int]]) -> None:
        packets = self.rules.packets(task, variant)
        reads = [access for access in packets if not access.write]
        if reads or not lane.segments:
            lane.segments.append(len(self.segments))
            source = self.rules.mailbox(self.rules.key(reads[0])[0]) if reads else ""
            self.segments.append(Segment(sm, variant.op, source, tuple(self._wait(access) for access in reads)))
        segment = self.segments[lane.segments[-1]]
        segment.packets += sum(self.rules.value(access.length) for access in reads)
        if variant.spec.chunks is not None:
            self._drain(segment, *next(copies, (True, 0)))
        made = Made(lane.segments[-1], segment.tape_bytes + segment.kv_bytes, segment.units, segment.blocks)
        if variant.spec.reduce_slots > 0:
            lane.reductions.append(made)
        self._note(sm, variant.op, packets, made)

    def _drain(self, segment: Segment, is_tape: bool, size: int) -> None:
        if is_tape:
            segment.tape_bytes += size
            segment.units += 1
        else:
            segment.kv_bytes += size
            segment.blocks += size // kv_block_bytes(self.program.config)

    def _copies(self, sm: int) -> Iterator[tuple[bool, int]]:
        """(of the tape, bytes) of every copy of an SM in order: the k-th is drained by the k-th task that drains."""
        for task, variant in self.rules.tasks(sm, Lane.STREAM):
            self._note(sm, variant.op, self.rules.packets(task, variant), None)
            if variant.spec.chunks is not None:
                yield variant.op == "copy_tape", self.rules.bytes(task, variant)

    def _wait(self, access: Access) -> int:
        key = self.rules.key(access)
        if key not in self._wait_ids:
            self._wait_ids[key] = len(self.waits)
            self.waits.append(Wait(key))
        return self._wait_ids[key]

    def _note(self, sm: int, op: str, packets: list[Access], made: Made | None) -> None:
        """Remember who uses which mailbox, and what the writes come after."""
        sides = set()
        for access in packets:
            start, count, phase = self.rules.key(access)
            side = (self.rules.mailbox(start), op, access.write)
            sides.add(side)
            self.traffic[side].packets += count
            if access.write and made is not None:
                self._writers[phase].append((start, start + count, made))
        for side in sides:
            self.traffic[side].tasks += 1
            self.traffic[side].sms.add(sm)

    def _resolve(self) -> None:
        """Fill in the producers of every wait."""
        for wait in self.waits:
            start, count, phase = wait.key
            last: dict[int, Made] = {}
            for begin, end, made in self._writers.get(phase, ()):
                if begin < start + count and end > start:
                    last[made.segment] = max(made, last.get(made.segment, made))
            wait.producers = tuple(last.values())


def _order(segments: list[Segment], waits: list[Wait], lanes: list[list[int]]) -> list[int]:
    """Segment ids, each after the one before it on its SM and after the producers it waits for."""
    missing = [len(wait.producers) for wait in waits]
    feeds: dict[int, list[int]] = defaultdict(list)
    for index, wait in enumerate(waits):
        for producer in wait.producers:
            feeds[producer.segment].append(index)
    order: list[int] = []
    heads = [0] * len(lanes)
    moved = True
    while moved:
        moved = False
        for sm, lane in enumerate(lanes):
            while heads[sm] < len(lane) and not any(missing[wait] for wait in segments[lane[heads[sm]]].waits):
                done = lane[heads[sm]]
                heads[sm] += 1
                order.append(done)
                moved = True
                for fed in feeds[done]:
                    missing[fed] -= 1
    if len(order) < len(segments):
        sm = next(sm for sm, lane in enumerate(lanes) if heads[sm] < len(lane))
        stuck = segments[lanes[sm][heads[sm]]]
        raise StuckPlanError(f"SM {sm} waits for ever in {stuck.op}; run amk validate, which names the cycle")
    return order
