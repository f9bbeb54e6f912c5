"""What a schedule may choose. Every knob changes the device tables or the generated code."""

from __future__ import annotations

from dataclasses import dataclass, field


def _knob(default: int, values: tuple[int, ...], changes: str) -> int:
    """A field that a search may move: `values` in order, and what another value `changes`."""
    chosen: int = field(default=default, metadata={"values": values, "changes": changes})
    return chosen


@dataclass(frozen=True)
class Knobs:
    """Defaults are the best measured on an H200 (see docs/design.md).

    `chunk_ksteps`: k-steps per ring chunk, about (512 bytes each). `ring_stages`: slots, 0 for all the shared
    memory there is. `in_flight`: chunks that the stream lane keeps on their way, `in_flight_low` once `stocked`
    slots are full (a deep queue of copies makes every hand-off wait behind it in L2); 0 for what suits the matrix
    and the size of a layer. `bulk_in_flight`, `bulk_stocked`: the same where gate/up and the head are copied, long
    runs of bytes with no hand-off in them. `prefetch_chunks`: chunks beyond a full ring that the stream lane
    lets L2 take meanwhile, 0 for none. `loaded_tiles`: tiles of a unit, whole chunks, that a warp loads into
    registers while it waits for x; 1 for none, 0 for what suits the size of a layer. `down_split`: K-split of the
    down projection, 0 for the smallest that fits. `down_pieces`: pieces of K in which an SM multiplies its units of
    down, so that it starts before the last rows of the MLP are there, 0 for as many as pay. `qkv_rows`, `o_rows`,
    `down_rows`: rows of a unit; 8 share rows out more evenly, in more tasks (units keep 16 where not every warp
    would have both halves of all its k-steps), 0 for rounds of a unit of 16 an SM and the rest in units of 8, where
    that leaves no SM more than one. `min_split_rows`: cached positions that are worth a split of their own.
    `max_queries`: query heads that share an attention task; 8 fill the rows of an mma tile as high and low halves.
    """

    compute_warps: int = _knob(8, (4, 6, 8, 10, 12, 14), "warps that share the K of a unit; registers per thread")
    chunk_ksteps: int = _knob(32, (8, 16, 24, 32, 48, 64, 96, 128), "bytes per ring slot and per bulk copy")
    ring_stages: int = _knob(0, (0, 4, 6, 8, 12, 16, 24), "slots of the ring, and so the shared memory it takes")
    reduce_slots: int = _knob(4, (2, 3, 4, 6, 8), "how far the compute lane may run ahead of the epilogue lane")
    in_flight: int = _knob(0, (0, 2, 3, 4, 5, 6, 8, 10, 12), "chunks on their way while the ring is not stocked")
    in_flight_low: int = _knob(2, (1, 2, 3, 4, 5, 6), "chunks on their way once the ring is stocked")
    stocked: int = _knob(
        0, (0, 2, 3, 4, 5, 6, 8, 10, 12), "full slots from which on fewer chunks are kept on their way"
    )
    bulk_in_flight: int = _knob(0, (0, 2, 3, 4, 5, 6, 8), "chunks of gate/up and of the head on their way")
    bulk_stocked: int = _knob(
        0, (0, 3, 4, 5, 6, 8, 10), "full slots from which on fewer chunks of gate/up and of the head are on their way"
    )
    prefetch_chunks: int = _knob(10, (0, 4, 10, 20), "chunks that L2 takes in advance while the ring is full")
    loaded_tiles: int = _knob(
        0, (0, 1, 4, 8, 12, 16, 24), "a unit's tiles that a warp loads while it waits for x: registers, code, the ring"
    )
    down_split: int = _knob(0, (0, 1, 2, 3, 4, 6, 8), "K-split of the down projection: tasks, mailboxes, parts to add")
    down_pieces: int = _knob(0, (0, 1, 2, 3, 4, 6, 8), "pieces of K in which an SM multiplies down: gathers, x, ring")
    qkv_rows: int = _knob(0, (0, 16, 8), "rows of a unit of q/k/v: balance over SMs, tasks")
    o_rows: int = _knob(0, (0, 16, 8), "rows of a unit of the attention's output projection: balance over SMs, tasks")
    down_rows: int = _knob(0, (0, 16, 8), "rows of a unit of down: balance over SMs, tasks, accumulators")
    min_split_rows: int = _knob(64, (16, 32, 48, 64, 96, 128, 192, 256), "cached positions per attention split")
    max_queries: int = _knob(8, (8, 4, 2, 1), "query heads per attention task: shared memory, K/V blocks copied again")
    max_splits: int = _knob(24, (1, 2, 4, 6, 8, 12, 16, 24, 32, 44), "SMs that share the attention of one K/V head")
