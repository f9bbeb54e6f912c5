"""What a token has to go through, from a Program at a position: segments of work and the hand-offs between them.

A segment is a run of compute tasks of an SM that starts where it has to wait for packets. Everything is read from the
op registry (which packets a task reads and writes, which bytes it copies), so that a new op needs nothing here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from amk.cost.rules import Key, Rules
from schedule_ir.layout import kv_block_bytes
from schedule_ir.op import Access, Lane
from schedule_ir.program import Program, Task, Variant


@dataclass
class Segment:
    """Work of one SM after one wait. Bytes come through the ring; `blocks` are K/V blocks that are attended to.

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


@dataclass
class Wait:
    """A hand-off: `producers` are segments; the packets `key` are all there once they have all ended."""

    key: Key
    producers: tuple[int, ...] = ()


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
    """Segments of an SM while they are collected; `reductions` are those whose results the epilogue has to take."""

    segments: list[int] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)


class _Planner:
    def __init__(self, program: Program, pos: int) -> None:
        self.program, self.rules = program, Rules(program, pos)
        self.segments: list[Segment] = []
        self.waits: list[Wait] = []
        self.traffic: dict[Side, Traffic] = defaultdict(Traffic)
        self._wait_ids: dict[Key, int] = {}
        self._writers: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # phase -> (start, end, segment)

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
            segment = lane.reductions[taken - 1] if taken else lane.segments[0]
            self._note(sm, variant.op, self.rules.packets(task, variant), segment)
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
        if variant.spec.reduce_slots > 0:
            segment.units += 1
            lane.reductions.append(lane.segments[-1])
        self._note(sm, variant.op, packets, lane.segments[-1])

    def _drain(self, segment: Segment, is_tape: bool, size: int) -> None:
        if is_tape:
            segment.tape_bytes += size
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

    def _note(self, sm: int, op: str, packets: list[Access], segment: int | None) -> None:
        """Remember who uses which mailbox, and that the writes are done when `segment` ends."""
        sides = set()
        for access in packets:
            start, count, phase = self.rules.key(access)
            side = (self.rules.mailbox(start), op, access.write)
            sides.add(side)
            self.traffic[side].packets += count
            if access.write and segment is not None:
                self._writers[phase].append((start, start + count, segment))
        for side in sides:
            self.traffic[side].tasks += 1
            self.traffic[side].sms.add(sm)

    def _resolve(self) -> None:
        """Fill in the producers of every wait."""
        tables = {phase: np.array(rows).reshape(-1, 3) for phase, rows in self._writers.items()}
        for wait in self.waits:
            start, count, phase = wait.key
            table = tables.get(phase, np.empty((0, 3), np.int64))
            inside = (table[:, 0] < start + count) & (table[:, 1] > start)
            wait.producers = tuple(np.unique(table[inside, 2]).tolist())


def _order(segments: list[Segment], waits: list[Wait], lanes: list[list[int]]) -> list[int]:
    """Segment ids, each after the one before it on its SM and after the producers it waits for."""
    missing = [len(wait.producers) for wait in waits]
    feeds: dict[int, list[int]] = defaultdict(list)
    for index, wait in enumerate(waits):
        for producer in wait.producers:
            feeds[producer].append(index)
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
