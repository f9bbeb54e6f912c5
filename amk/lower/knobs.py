"""What a schedule may choose. Every knob changes the device tables or the generated code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knobs:
    """Defaults are the best measured on an H200 (see docs/design.md).

    `chunk_ksteps`: k-steps per ring chunk, about (512 bytes each). `ring_stages`: slots, 0 for all the shared memory
    there is. `in_flight`: chunks that the stream lane keeps on their way, `in_flight_low` once `stocked` slots are
    full (a deep queue of copies makes every hand-off wait behind it in L2). `down_split`: K-split of the down
    projection, 0 for the smallest that fits. `min_split_rows`: cached positions that are worth a split of their own.
    """

    compute_warps: int = 8
    chunk_ksteps: int = 32
    ring_stages: int = 0
    reduce_slots: int = 4
    in_flight: int = 5
    in_flight_low: int = 2
    stocked: int = 6
    down_split: int = 0
    min_split_rows: int = 64
    max_splits: int = 16
