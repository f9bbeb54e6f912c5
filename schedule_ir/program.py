"""The schedule of one token step: buffers, op variants, and the ordered tasks of every lane."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from schedule_ir.layout import TILE_ROWS
from schedule_ir.registry import REGISTRY, Lane, Op
from schedule_ir.target import Target


class Space(StrEnum):
    """Where a buffer lives, and so who can see it and what orders accesses to it."""

    TAPE = "tape"
    PACKETS = "packets"
    KV = "kv"
    CONSTANT = "constant"
    SHARED = "shared"


class Section(StrEnum):
    """`BODY` runs for every token; `HEAD` only where logits are needed (not for most prompt tokens)."""

    BODY = "body"
    HEAD = "head"


@dataclass(frozen=True)
class Buffer:
    """`size` elements of `element_bytes` at element `offset` of its space.

    SHARED buffers exist once per SM; TAPE is one buffer per SM, named "tape.<sm>".
    """

    name: str
    space: Space
    offset: int
    size: int
    element_bytes: int

    @property
    def end(self) -> int:
        """First element after the buffer."""
        return self.offset + self.size


@dataclass(frozen=True)
class Variant:
    """An op with its compile-time constants; its index in `Program.variants` is the opcode in the tables."""

    op: str
    constants: Mapping[str, int]

    @property
    def spec(self) -> Op:
        """The registry's declaration of the op."""
        return REGISTRY[self.op]


@dataclass(frozen=True)
class Task:
    """One instruction of a lane: an opcode and one integer per field of the op, in the op's field order."""

    opcode: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class TensorTiles:
    """Where a matrix, or a band of its packed rows, lies in the tapes: unit `u`, of `unit_rows` packed rows from
    `first_row` + `u` * `unit_rows` on, starts at atom `offsets[u]` of the tape of `sms[u]`.

    The packed rows are those of `tensors` (checkpoint names, with `rows[i]` rows each): stacked one tensor after the
    other, or `interleaved`, 16 / len(tensors) rows of each per unit; padded with zero rows to whole units. A unit
    holds columns [columns[0], columns[1]) of them, padded with zeros to `ksteps`. An atom is a k-step of 16 rows, or
    two of a unit of 8: k-step j in its first 8 rows, k-step j + `atoms` in the others.
    """

    name: str
    tensors: tuple[str, ...]
    interleaved: bool
    rows: tuple[int, ...]
    columns: tuple[int, int]
    ksteps: int
    sms: tuple[int, ...]
    offsets: tuple[int, ...]
    unit_rows: int = TILE_ROWS
    first_row: int = 0

    @property
    def atoms(self) -> int:
        """Atoms of a unit, which are tiles of 16 x 16."""
        return self.ksteps * self.unit_rows // TILE_ROWS


@dataclass(frozen=True)
class PackedVector:
    """A bias in the packed row order of its matrix, at `offset` of the bias array; "" stands for a tensor of zeros."""

    tensors: tuple[str, ...]
    interleaved: bool
    rows: tuple[int, ...]
    offset: int


NEUTRAL_SCALARS: Mapping[str, float] = {
    "embed_scale": 1.0,
    "residual_multiplier": 1.0,
    "logits_divisor": 1.0,
    "logits_cap": 0.0,
    "score_cap": 0.0,
}
"""Scalars that a Program may leave out, and what they are then: with these values they compute nothing."""


@dataclass(frozen=True)
class Program:
    """Everything that one token step does, for every position below `config["max_seq"]`.

    `config` holds the sizes and knobs that are compile-time constants of the kernel, `scalars` the real numbers;
    `lanes[(sm, lane, section)]` the ordered tasks; `tiles` the meaning of the tape bytes; `norms` the norm weights by
    row of the norms array ("" stands for ones); `biases` the parts of the bias array, q/k norm weights among them;
    `knobs` what the lowering was asked for.
    """

    target: Target
    config: Mapping[str, int]
    scalars: Mapping[str, float]
    kv_dtype: str
    buffers: tuple[Buffer, ...]
    variants: tuple[Variant, ...]
    lanes: Mapping[tuple[int, Lane, Section], tuple[Task, ...]]
    tiles: tuple[TensorTiles, ...]
    norms: tuple[str, ...]
    biases: tuple[PackedVector, ...] = ()
    knobs: Mapping[str, int] = field(default_factory=dict)

    @property
    def sms(self) -> int:
        """CTAs of the cooperative grid, one per SM."""
        return self.config["sms"]

    def scalar(self, name: str) -> float:
        """A scalar, or its neutral value. Raises KeyError for one that has none."""
        return self.scalars[name] if name in self.scalars else NEUTRAL_SCALARS[name]

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name. Raises KeyError."""
        for candidate in self.buffers:
            if candidate.name == name:
                return candidate
        raise KeyError(name)

    def tasks(self) -> Iterator[tuple[int, Lane, Section, int, Task]]:
        """All tasks as (sm, lane, section, index in the section, task)."""
        for (sm, lane, section), tasks in self.lanes.items():
            for index, task in enumerate(tasks):
                yield sm, lane, section, index, task
