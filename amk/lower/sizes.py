"""Sizes that follow from the model, the target and the knobs: units per matrix, chunking, shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from amk.errors import RejectedProgramError
from amk.lower.knobs import Knobs
from amk.model.graph import ModelGraph
from schedule_ir.layout import ATOM_BYTES, KSTEP, KV_BLOCK, KV_ELEMENT_BYTES, TILE_ROWS, ceil_to, ksteps, partial_bytes
from schedule_ir.target import Target

BARRIER_BYTES = 8
REDUCE_ROWS = TILE_ROWS + 1
"""Of a reduction slot: of each row of a unit the compute warps' partial sums, and their parts of the sum of squares."""

LANE_STATE_BYTES = 320
"""A flag, then two sets of candidates, one per warp and one more, for the choice of a token."""

MIN_RING_STAGES = 2
PIECE = 2048
"""Inputs of down, about, in a piece of it."""

MIN_ROUNDS = 3
"""Rounds of gate/up units from which on down is multiplied in pieces."""

NARROW_ROWS = TILE_ROWS // 2
"""Rows of a narrow unit: the two halves of a tile's rows are two halves of K."""

LARGE_LAYER = 1_200_000
"""Bytes of a layer's matrices per SM from which on it is large."""

POLLED_KSTEPS = 32
"""k-steps of x that a warp polls together: kPollRounds of the kernel, of 4 each."""

CONCESSIONS = ((8, 4), (8, 3), (4, 4), (4, 3), (4, 2), (2, 2), (1, 2))
"""(most query heads per attention task, least ring stages), the one that is given up last first."""


@dataclass(frozen=True)
class Matrix:
    """Row-block units of `rows` rows and `atoms` tiles, copied in chunks of `chunk`; x has `ksteps` k-steps."""

    ksteps: int
    rows: int
    atoms: int
    chunk: int


def chunk_ksteps(total: int, knobs: Knobs) -> int:
    """k-steps per chunk of a unit: near the knob, and a multiple of the warps where there are several chunks."""
    chunks = max(1, round(total / knobs.chunk_ksteps))
    if chunks == 1:
        return total
    return ceil_to(-(-total // chunks), knobs.compute_warps)


def matrix(columns: int, knobs: Knobs, unit_rows: int) -> Matrix:
    """The units of a matrix, or of some of its rows, with so many columns."""
    total = ksteps(columns)
    atoms = total * unit_rows // TILE_ROWS
    return Matrix(total, unit_rows, atoms, chunk_ksteps(atoms, knobs))


def unit_rows(wanted: int, totals: Iterable[int], knobs: Knobs) -> int:
    """Rows of a unit whose pieces have so many k-steps: 8 only where every warp has both halves of all its k-steps."""
    halves = all(total % (2 * knobs.compute_warps) == 0 for total in totals)
    return wanted if halves else TILE_ROWS


@dataclass(frozen=True)
class Band:
    """Units of a matrix that have equally many rows, the packed rows from `first` on."""

    first: int
    units: int
    rows: int = TILE_ROWS


def bands(rows: int, wanted: int, totals: Sequence[int], sms: int, knobs: Knobs) -> tuple[Band, ...]:
    """How the packed rows of a matrix are shared out, whose pieces have so many k-steps: in units of `wanted` rows; if
    that is 0, in rounds of a unit of 16 an SM and the rest in units of 8, where that leaves no SM more than one.
    """
    if wanted:
        size = unit_rows(wanted, totals, knobs)
        return (Band(0, -(-rows // size), size),)
    rounds = rows // (TILE_ROWS * sms)
    first = rounds * sms * TILE_ROWS
    rest = -(-(rows - first) // NARROW_ROWS)
    if not rounds or not 0 < rest <= sms or unit_rows(NARROW_ROWS, totals, knobs) != NARROW_ROWS:
        return (Band(0, -(-rows // TILE_ROWS)),)
    return Band(0, rounds * sms), Band(first, rest, NARROW_ROWS)


def bands_of_down(graph: ModelGraph, sms: int, knobs: Knobs) -> tuple[Band, ...]:
    """Those of the down projection, the same in all its pieces."""
    totals = [ksteps(end - begin) for begin, end in all_down_pieces(graph, sms, knobs)]
    return bands(graph.hidden, knobs.down_rows, totals, sms, knobs)


class InFlight(NamedTuple):
    """Chunks on their way at most while fewer than `stocked` slots are taken."""

    most: int
    stocked: int

    def within(self, stages: int) -> InFlight:
        """As much of it as a ring of so many slots allows."""
        return InFlight(min(self.most, stages), min(self.stocked, stages - 1))


def has_large_layers(graph: ModelGraph, target: Target) -> bool:
    """Whether a layer's matrices have LARGE_LAYER bytes an SM or more, where that was measured to matter."""
    attention = (2 * graph.heads + 2 * graph.kv_heads) * graph.head_dim
    layer_bytes = 2 * graph.hidden * (attention + 3 * graph.intermediate)
    return target.path == "sm90" and layer_bytes >= LARGE_LAYER * target.sms


def loaded_tiles(graph: ModelGraph, target: Target, knobs: Knobs) -> int:
    """Tiles of a unit that a warp loads while it waits for x.

    Measured on an H200 (docs/design.md), nowhere else, and with vectors that a warp polls in one go: in several, the
    tiles would take registers from all polls but the first.
    """
    if knobs.loaded_tiles:
        return knobs.loaded_tiles if knobs.loaded_tiles > 1 else 0
    if target.path != "sm90" or ksteps(graph.hidden) > POLLED_KSTEPS * knobs.compute_warps:
        return 0
    return 16 if has_large_layers(graph, target) else 8


def copies_in_flight(graph: ModelGraph, target: Target, knobs: Knobs) -> InFlight:
    """Of q/k/v, o and down: hand-offs are due, which a deep queue of copies delays.

    Measured on an H200 (docs/design.md), like the limits of the two functions below; on code paths other than sm_90,
    where nothing was measured, all copies have these.
    """
    return InFlight(knobs.in_flight or 3, knobs.stocked or (5 if has_large_layers(graph, target) else 4))


def bulk_in_flight(graph: ModelGraph, target: Target, knobs: Knobs) -> InFlight:
    """Of gate/up and of the head: long runs of bytes with no hand-off in them."""
    found = copies_in_flight(graph, target, knobs)
    if target.path == "sm90":
        found = InFlight(5, 9 if has_large_layers(graph, target) else 8)
    return InFlight(knobs.bulk_in_flight or found.most, knobs.bulk_stocked or found.stocked)


def kv_in_flight(graph: ModelGraph, target: Target, knobs: Knobs) -> InFlight:
    """Of past K/V: a hand-off is due after them, but where there are many they are most of the bytes."""
    if target.path != "sm90":
        return copies_in_flight(graph, target, knobs)
    return InFlight(knobs.in_flight or 4, knobs.stocked or 6)


def all_down_pieces(graph: ModelGraph, sms: int, knobs: Knobs) -> list[tuple[int, int]]:
    """Column ranges of the pieces of all K-parts of down."""
    count = pieces_of(graph, sms, knobs)
    parts = down_parts(graph.intermediate, knobs.down_split, knobs)
    return [piece for begin, end in parts for piece in down_pieces(begin, end, count, knobs)]


def down_parts(intermediate: int, parts: int, knobs: Knobs) -> list[tuple[int, int]]:
    """Column ranges of the K-split of the down projection, whole k-steps for every warp."""
    per = ceil_to(-(-ksteps(intermediate) // parts), knobs.compute_warps) * KSTEP
    return [(k, min(k + per, intermediate)) for k in range(0, intermediate, per)]


def down_pieces(begin: int, end: int, pieces: int, knobs: Knobs) -> list[tuple[int, int]]:
    """Column ranges in which an SM multiplies [begin, end) of the down projection, one gather each: whole chunks."""
    total = ksteps(end - begin)
    chunk = chunk_ksteps(-(-total // pieces), knobs)
    per = ceil_to(-(-total // pieces), chunk) * KSTEP
    return [(k, min(k + per, end)) for k in range(begin, end, per)]


def pieces_of(graph: ModelGraph, sms: int, knobs: Knobs) -> int:
    """In how many pieces a unit of down is multiplied, if the knobs leave it open.

    Rows of the MLP appear in rounds of one unit per SM. With several rounds the first pieces can be multiplied while
    the last rows are on their way; with few, all rows appear together and another gather only costs time.
    """
    rounds = -(-graph.intermediate // (TILE_ROWS // 2)) // sms
    return knobs.down_pieces or (-(-graph.intermediate // PIECE) if rounds >= MIN_ROUNDS else 1)


@dataclass(frozen=True)
class SharedMemory:
    """Bytes of each region of an SM's shared memory, in this order."""

    slot: int
    stages: int
    activation: int
    residual: int
    scratch: int
    reduce: int
    accumulators: int

    @property
    def barriers(self) -> int:
        """mbarriers of the ring (full and empty), then the lanes' state."""
        return LANE_STATE_BYTES + BARRIER_BYTES * 2 * self.stages

    def regions(self) -> list[tuple[str, int]]:
        """(name, bytes) in address order."""
        return [
            ("ring", self.slot * self.stages),
            ("activation", self.activation),
            ("residual", self.residual),
            ("scratch", self.scratch),
            ("reduce", self.reduce),
            ("accumulators", self.accumulators),
            ("barriers", self.barriers),
        ]

    @property
    def total(self) -> int:
        """Bytes in all."""
        return sum(size for _, size in self.regions())


def _atoms_of_narrow(graph: ModelGraph, sms: int, knobs: Knobs) -> list[int]:
    """Tiles of the units of 8 rows that there are."""
    attention, heads = graph.heads * graph.head_dim, graph.heads + 2 * graph.kv_heads
    pieces = [ksteps(end - begin) for begin, end in all_down_pieces(graph, sms, knobs)]
    matrices = [
        (heads * graph.head_dim, knobs.qkv_rows, [ksteps(graph.hidden)]),
        (graph.hidden, knobs.o_rows, [ksteps(attention)]),
        (graph.hidden, knobs.down_rows, pieces),
    ]
    return [
        total // 2
        for rows, wanted, totals in matrices
        if bands(rows, wanted, totals, sms, knobs)[-1].rows < TILE_ROWS
        for total in totals
    ]


def reduce_slot_bytes(warps: int) -> int:
    """Bytes of a reduction slot: a row is fp32 of two halves of the warps, each padded to 16 bytes."""
    return REDUCE_ROWS * 2 * ceil_to(warps // 2 * 4, 16)


def shared_memory(graph: ModelGraph, target: Target, knobs: Knobs, kv_dtype: str) -> SharedMemory:
    """Shared memory of one SM; as many ring stages as fit unless the knobs say how many."""
    sms = min(target.sms, -(-graph.intermediate // (TILE_ROWS // 2)))
    parts = down_parts(graph.intermediate, knobs.down_split, knobs)
    pieces = all_down_pieces(graph, sms, knobs)
    widest = [ksteps(graph.hidden), ksteps(graph.heads * graph.head_dim), *(ksteps(b - a) for a, b in pieces)]
    warps = knobs.compute_warps
    units = sum(band.units for band in bands_of_down(graph, sms, knobs))
    parked = -(-units // sms) if len(pieces) > len(parts) else 0
    per_warp = -(-max(widest) // warps)
    residual_rounds = ceil_to(ksteps(graph.hidden), 4 * warps) // (4 * warps)
    head_dim = ceil_to(graph.head_dim, KSTEP)
    queries = min(graph.group, knobs.max_queries)
    block = 2 * KV_BLOCK * head_dim * KV_ELEMENT_BYTES[kv_dtype]
    slot = ATOM_BYTES * max(chunk_ksteps(atoms, knobs) for atoms in [*widest, *_atoms_of_narrow(graph, sms, knobs)])
    slot = max(slot, block)
    fixed = SharedMemory(
        slot=slot,
        stages=0,
        activation=warps * per_warp * 64,
        residual=residual_rounds * warps * 32 * 8,
        scratch=ceil_to(head_dim * 32 + block // 2 + partial_bytes(warps, queries, graph.head_dim), 128),
        reduce=ceil_to(knobs.reduce_slots * (reduce_slot_bytes(warps) + BARRIER_BYTES), 128),
        accumulators=parked * warps * TILE_ROWS * 4,
    )
    free = target.smem_bytes - fixed.total
    stages = knobs.ring_stages or max(0, free // (slot + 2 * BARRIER_BYTES))
    return SharedMemory(slot, stages, fixed.activation, fixed.residual, fixed.scratch, fixed.reduce, fixed.accumulators)


def _candidates(graph: ModelGraph, knobs: Knobs) -> list[Knobs]:
    """Knobs with down_split and chunk_ksteps settled, the preferred first."""
    most = max(1, ksteps(graph.intermediate) // knobs.compute_warps)
    splits = [knobs.down_split] if knobs.down_split else [p for p in (1, 2, 3, 4, 6, 8, 12, 16) if p <= most]
    chunks = [c for c in (knobs.chunk_ksteps, knobs.chunk_ksteps // 2) if c >= knobs.compute_warps]
    return [
        replace(knobs, down_split=split, chunk_ksteps=chunk)
        for split in splits
        for chunk in chunks or [knobs.chunk_ksteps]
    ]


def choose_memory(graph: ModelGraph, target: Target, knobs: Knobs, kv_dtype: str) -> tuple[Knobs, SharedMemory]:
    """(knobs with down_split and chunk_ksteps settled, shared memory) that leave a usable ring.

    Prefers no K-split of the down projection and full chunks; gives up chunk size before it splits further, and only
    then ring stages and query heads per attention task. Raises RejectedProgramError if nothing fits.
    """
    for queries, stages in CONCESSIONS:
        for settled in _candidates(graph, replace(knobs, max_queries=min(queries, knobs.max_queries))):
            memory = shared_memory(graph, target, settled, kv_dtype)
            if memory.stages >= stages and memory.total <= target.smem_bytes:
                return settled, memory
    raise RejectedProgramError(
        f"{memory.total} bytes of shared memory with {memory.stages} ring stages do not fit the {target.smem_bytes} of "
        f"{target.name} (at least {MIN_RING_STAGES} stages); raise down_split, lower chunk_ksteps or take another GPU"
    )
