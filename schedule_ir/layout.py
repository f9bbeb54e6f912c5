"""Sizes and orders of packed data: weight tiles, K/V blocks, K chunks, attention splits.

Weight tile: 16 rows x 16 columns of bf16 as an A fragment of mma.m16n8k16 (PTX ISA, "Matrix Fragments for
mma.m16n8k16"): 512 bytes, lane-major, four 32-bit registers per lane. A unit is 16 rows x all its k-steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from schedule_ir.expr import Expr, ceil_div, maximum, minimum, var

TILE_ROWS = 16
KSTEP = 16
ATOM_BYTES = TILE_ROWS * KSTEP * 2
KV_BLOCK = 16
"""Positions in one K/V block: one k-step of P V, two n-blocks of Q K^T."""

KV_ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}
RECORD_WORDS = 12


def ceil_to(value: int, multiple: int) -> int:
    """`value` rounded up to a multiple."""
    return -(-value // multiple) * multiple


def ksteps(columns: int) -> int:
    """k-steps of 16 that cover `columns`."""
    return -(-columns // KSTEP)


def chunk_sizes(total_ksteps: int, chunk_ksteps: int) -> list[int]:
    """k-steps in each ring chunk of a unit, in order."""
    full, rest = divmod(total_ksteps, chunk_ksteps)
    return [chunk_ksteps] * full + ([rest] if rest else [])


def kv_block_bytes(config: Mapping[str, int]) -> int:
    """Bytes of one block of 16 positions of K and V of one head (head_dim padded to 16)."""
    return 2 * KV_BLOCK * config["head_dim_padded"] * config["kv_element_bytes"]


POS = var("pos")
"""Position of the token of this step: `pos` rows of K/V are in the cache, row `pos` is new."""


def split_rows(config: Mapping[str, int]) -> Expr:
    """Cached positions per attention split at `pos`: a multiple of 16, at least `min_split_rows`."""
    cap = config["max_splits"] * KV_BLOCK
    return maximum(config["min_split_rows"], ceil_div(POS, cap) * KV_BLOCK)


def split_count(config: Mapping[str, int]) -> Expr:
    """Attention splits that are active at `pos`, at least one; never more than `max_splits`."""
    return maximum(1, ceil_div(POS, split_rows(config)))


def split_begin(config: Mapping[str, int], split: int) -> Expr:
    """First cached position of a split."""
    return minimum(POS, split_rows(config) * split)


def split_end(config: Mapping[str, int], split: int) -> Expr:
    """First position after a split; the last active one ends at `pos`."""
    return minimum(POS, split_rows(config) * (split + 1))
