"""How an op is declared: everything anyone needs to know of it, side by side, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from schedule_ir.expr import ExprLike


class Lane(StrEnum):
    """The three in-order queues of an SM. `COMPUTE` is executed by all compute warps together."""

    STREAM = "stream"
    COMPUTE = "compute"
    EPILOGUE = "epilogue"


class How(StrEnum):
    """What carries an access, and so what may order it.

    PACKET: 64-bit {value, tag} accesses, readers poll the tag. BULK: copies by the copy engine (async proxy).
    PLAIN: ordinary accesses of the executing threads. RING: the SM's shared-memory ring, ordered by mbarriers.
    """

    PACKET = "packet"
    BULK = "bulk"
    PLAIN = "plain"
    RING = "ring"


@dataclass(frozen=True)
class Access:
    """`length` elements from `start` of `space` are read or written; both may depend on `pos`.

    `phase` is set for packets: the tag is epoch * phases + phase (`previous_epoch`: of the token before).
    `active` is an index rule that is non-zero at the positions where the access happens (None: always).
    """

    space: str
    start: ExprLike
    length: ExprLike
    write: bool
    how: How
    phase: int | None = None
    previous_epoch: bool = False
    active: ExprLike | None = None


@dataclass(frozen=True)
class Cost:
    """Bytes from device memory (may depend on `pos`) and multiply-adds of one task."""

    bytes: ExprLike = 0
    flops: ExprLike = 0


Args = Mapping[str, int]
AccessRule = Callable[[Args, Args, Args], list[Access]]
CostRule = Callable[[Args, Args, Args], Cost]
CheckRule = Callable[[Args, Args], list[str]]
Instance = tuple[tuple[int, ...], tuple[int, ...]]
"""Template arguments of an op's code, and the arguments of its `run` that follow from the variant."""


def _no_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return []


def _no_cost(args: Args, constants: Args, config: Args) -> Cost:
    return Cost()


def _no_check(constants: Args, config: Args) -> list[str]:
    return []


def _all_constants(constants: Args, config: Args) -> Instance:
    return tuple(constants.values()), ()


@dataclass(frozen=True)
class Op:
    """An instruction kind.

    `fields` name the per-task integers (device table words 1..), `constants` the compile-time ones. `template` is the
    CUDA struct template in kernels/ whose `run` executes it. `instance` (of constants, config) says with which
    template arguments (all constants, in this order), and which arguments follow (lane, task). Variants of equal
    template and template arguments share code, of which there should be little: what the instruction cache does not
    hold comes from L2. The rules take (args, constants, config) and return the accesses in program order, the cost, and
    broken preconditions. `chunks` says how many ring slots the task fills (stream) or drains (compute).
    """

    name: str
    lane: Lane
    fields: tuple[str, ...]
    constants: tuple[str, ...]
    template: str
    summary: str
    accesses: AccessRule = _no_access
    cost: CostRule = _no_cost
    check: CheckRule = _no_check
    chunks: Callable[[Args, Args, Args], ExprLike] | None = None
    instance: Callable[[Args, Args], Instance] = _all_constants
    reduce_slots: int = 0
    """+1: hands one reduction slot to the epilogue lane (compute); -1: takes one (epilogue)."""
