"""What all ops share: packets, bounds, positions, and the agents that take the steps."""

from __future__ import annotations

from typing import Any

from schedule_ir import Program
from schedule_ir.op import Lane
from schedule_ir.program import Section
from tests.validator.machine.state import Agent, BadProgramError, Condition, Setup, Sm


class Base:
    """Packets, K/V cache and SMs of one run of a Program."""

    def __init__(self, program: Program, setup: Setup, prompt: list[Any]) -> None:
        self.program, self.setup, self.prompt = program, setup, prompt
        self.config = program.config
        self.sm = [Sm(setup.warps) for _ in range(program.sms)]
        never = (
            0 if setup.epoch == 1 else -1
        )  # zeros at first; later what older epochs left, which no tag of the run equals
        self.packets: list[tuple[int, Any]] = [(never, None)] * self.config["packets"]
        self.kv: dict[int, Any] = {}
        self.logits: dict[int, dict[int, Any]] = {}

    def engine(self, number: int) -> Agent:
        """The copy engine of an SM."""
        raise NotImplementedError

    def agents(self) -> list[Agent]:
        """Every warp of every SM, and its copy engine."""
        found: list[Agent] = []
        for sm in range(self.program.sms):
            found += [self.run_lane(sm, Lane.STREAM, 0), self.run_lane(sm, Lane.EPILOGUE, 0), self.engine(sm)]
            found += [self.run_lane(sm, Lane.COMPUTE, warp) for warp in range(self.setup.warps)]
        return found

    def run_lane(self, sm: int, lane: Lane, warp: int) -> Agent:
        """One lane (or one warp of it), token after token."""
        for step, head in enumerate(self.setup.heads):
            if lane is Lane.COMPUTE and self.prompt[step] is not None:
                self.sm[sm].token[warp] = self.prompt[step]
            for section in (Section.BODY, Section.HEAD) if head else (Section.BODY,):
                for task in self.program.lanes.get((sm, lane, section), ()):
                    variant = self.program.variants[task.opcode]
                    args = dict(zip(variant.spec.fields, task.args, strict=True))
                    run = getattr(self, variant.op)
                    yield from run(sm, warp, step, {**args, **variant.constants})

    def tag(self, step: int, phase: int) -> int:
        return ((self.setup.epoch + step) * self.config["phases"] + phase) % 2**32

    def arrived(self, start: int, length: int, tag: int) -> bool:
        return all(packet[0] == tag for packet in self.packets[start : start + length])

    def read(self, index: int) -> Any:
        return self.packets[index][1]

    def check_range(self, start: int, length: int, end: int, what: str) -> None:
        if start < 0 or length < 0 or start + length > end:
            raise BadProgramError(f"{what} [{start}, {start + length}) outside {end}")

    def poll(self, start: int, length: int, tag: int) -> Condition:
        self.check_range(start, length, len(self.packets), "packets")
        return lambda: self.arrived(start, length, tag)

    def poll_some(self, places: list[int], tag: int) -> Condition:
        return lambda: all(self.packets[i][0] == tag for i in places)

    def publish_at(self, index: int, value: Any, tag: int) -> None:
        self.check_range(index, 1, len(self.packets), "packets")
        self.packets[index] = (tag, value)

    def split(self, pos: int) -> tuple[int, int]:
        """(rows per split, number of splits)."""
        cap = self.config["max_splits"] * 16
        rows = max(self.config["min_split_rows"], -(-pos // cap) * 16)
        return rows, max(1, -(-pos // rows))

    def pos(self, step: int) -> int:
        return self.setup.start + step

    def meet(self, sm: Sm, warp: int) -> Agent:
        sm.barrier[warp] += 1
        mine = sm.barrier[warp]
        yield lambda: min(sm.barrier) >= mine

    def slice_of(self, length: int, warp: int) -> list[int]:
        return [i for i in range(length) if (i // 16) % self.setup.warps == warp]
