"""Sizes and orders of packed data: weight tiles, K/V blocks, K chunks, attention splits.

Weight tile: 16 rows x 16 columns of bf16 as an A fragment of mma.m16n8k16 (PTX ISA, "Matrix Fragments for
mma.m16n8k16"): 512 bytes, lane-major, four 32-bit registers per lane. A unit is 16 or 8 rows x all their k-steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from schedule_ir.expr import Expr, ExprLike, ceil_div, maximum, minimum, var

TILE_ROWS = 16
UNIT_ROWS = (16, 8)
"""Rows that a unit may have. Of 8 rows, a tile holds two k-steps."""

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


def value_shares(head_dim_padded: int) -> int:
    """Compute warps that attend the same block together, each with its share of the value's dimensions.

    A warp's running output takes half a register per dimension and thread; of 256 they would not fit.
    """
    return 2 if head_dim_padded > 128 else 1


def new_row_bytes(config: Mapping[str, int]) -> int:
    """Bytes of a new K/V row in shared memory: as position 0 of a block whose V fragments lie in its K fragments."""
    return kv_block_bytes(config) // 2


def partial_bytes(warps: int, queries: int, head_dim: int) -> int:
    """Bytes of the partial results in shared memory.

    Of attention per query and group of warps, of a merge per warp: an output, in rows that begin 8 words further in
    the banks each, and a maximum and a sum, each in rows of whole 16 bytes.
    """
    output, groups = ceil_to(head_dim - 8, 32) + 8, warps // value_shares(ceil_to(head_dim, KSTEP))
    return max(4 * n * (rows * output + 2 * ceil_to(rows, 4)) for n, rows in ((queries, groups), (1, warps)))


POS = var("pos")
"""Position of the token of this step: `pos` rows of K/V are in the cache, row `pos` is new."""


def split_rows(config: Mapping[str, int]) -> Expr:
    """Cached positions per attention split at `pos`, without a window: a multiple of 16, at least `min_split_rows`."""
    cap = config["max_splits"] * KV_BLOCK
    return maximum(config["min_split_rows"], ceil_div(POS, cap) * KV_BLOCK)


def split_count(config: Mapping[str, int]) -> Expr:
    """Attention splits active at `pos`, at least one, never more than `max_splits`; the same for all layers."""
    return maximum(1, ceil_div(POS, split_rows(config)))


def window_first(window: ExprLike) -> Expr:
    """First position that a sliding window of `window` positions, the new one among them, shows at `pos`."""
    return maximum(0, POS + 1 - window)


def window_begin(window: ExprLike) -> Expr:
    """First position of the block that `window_first` is in: whole blocks are copied, the rows before are masked."""
    return window_first(window) // KV_BLOCK * KV_BLOCK


def window_blocks(window: ExprLike) -> Expr:
    """Blocks of cached positions that a window reaches at `pos`."""
    return ceil_div(POS - window_begin(window), KV_BLOCK)


def window_share(config: Mapping[str, int], split: ExprLike, window: ExprLike) -> Expr:
    """How many of these blocks are before a split: they are shared out evenly.

    The last active split always has the last block, which row `pos` may be in; others may have none.
    """
    return window_blocks(window) * split // split_count(config)


def window_edge(config: Mapping[str, int], split: ExprLike, window: ExprLike) -> Expr:
    """Where a split begins with a window."""
    return window_begin(window) + window_share(config, split, window) * KV_BLOCK


def split_begin(config: Mapping[str, int], split: int, window: int = 0) -> Expr:
    """First cached position of a split."""
    return minimum(POS, window_edge(config, split, window) if window else split_rows(config) * split)


def split_end(config: Mapping[str, int], split: int, window: int = 0) -> Expr:
    """First position after a split; the last active one ends at `pos`."""
    return split_begin(config, split + 1, window)
