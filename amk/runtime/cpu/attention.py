"""Attention of a plan's node: q/k norm, rotation, the new row, and all splits of the cached positions, merged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from amk.runtime.cpu.kv import KvCache
from amk.runtime.cpu.nodes import AttentionNode
from amk.runtime.cpu.step import F32, Bound, Step, Values, read
from schedule_ir.expr import evaluate
from schedule_ir.layout import split_begin, split_count, split_end, window_first
from schedule_ir.ops.attention import (
    PROJECTION,
    attend_meaning,
    combine_meaning,
    head_norm_meaning,
    rotate_meaning,
)
from schedule_ir.program import Program

Splits = list[tuple[int, int]]
Norm = Callable[[Values, F32, F32], tuple[F32, F32]]


def active_splits(program: Program, pos: int, window: int = 0) -> Splits:
    """(begin, end) of the cached positions that each split which is active at `pos` sees."""
    env, config = {"pos": pos}, program.config
    first = int(evaluate(window_first(window), env)) if window else 0
    splits = []
    for split in range(int(evaluate(split_count(config), env))):
        begin, end = (int(evaluate(rule(config, split, window), env)) for rule in (split_begin, split_end))
        splits.append((max(begin, first), end))
    return splits


def bind_attention(node: AttentionNode, program: Program, biases: F32, kv: KvCache) -> Bound:
    """The node as a function: float32 [blocks * queries * head_dim]."""
    dim, scale, cap = (program.config["head_dim"], program.scalar("attention_scale"), program.scalar("score_cap"))
    rows, how = _slice(node.kv_heads), node.how
    norm = _bind_norm(node, program, biases)

    def run(values: Values, step: Step) -> F32:
        q = read(values, node.q).reshape(-1, how.queries, dim)
        k = read(values, node.k).reshape(-1, dim)
        if norm is not None:
            q, k = norm(values, q, k)
        if how.rope:
            q, k = (rotate_meaning(x, step.cos_sin[how.rope - 1]) for x in (q, k))
        kv.append(rows, step.pos, k, read(values, node.v).reshape(-1, dim))
        past = slice(0, step.pos + 1)
        splits = active_splits(program, step.pos, how.window)
        attend = _attend_window if how.window else _attend
        return attend(q, kv.keys[rows, past], kv.values[rows, past], splits, scale, cap).reshape(-1)

    return run


def _bind_norm(node: AttentionNode, program: Program, biases: F32) -> Norm | None:
    """(values, q [blocks, queries, d], k [blocks, d]) -> q and k normed; None where they are not."""
    dim, eps, how = program.config["head_dim"], program.scalar("eps"), node.how
    if not how.qk_norm:
        return None
    projection = how.qk_norm == PROJECTION
    width = how.queries * dim if projection else dim
    q_weights = np.stack([biases[at : at + width] for at in node.q_weights]).reshape(len(node.q_weights), -1, dim)
    k_weights = np.stack([biases[at : at + dim] for at in node.k_weights])

    def norm(values: Values, q: F32, k: F32) -> tuple[F32, F32]:
        if not projection:
            return head_norm_meaning(q, q_weights, eps), head_norm_meaning(k, k_weights, eps)
        q_all, k_all = read(values, node.q_all), read(values, node.k_all)
        q = head_norm_meaning(q, q_weights, eps, np.dot(q_all, q_all), len(q_all))
        return q, head_norm_meaning(k, k_weights, eps, np.dot(k_all, k_all), len(k_all))

    return norm


def _slice(rows: tuple[int, ...]) -> npt.NDArray[np.intp] | slice:
    """Consecutive rows as a slice, which NumPy does not copy."""
    if rows == tuple(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows))
    return np.array(rows, np.intp)


def _attend(q: F32, keys: F32, values: F32, splits: Splits, scale: float, cap: float) -> F32:
    """Queries [b, n, d] over rows [b, pos + 1, d], split by split, merged: [b, n, d].

    All splits but the last have the same length, and are attended in one go; the last one takes the new row too.
    """
    begin, _ = splits[-1]
    last = attend_meaning(q, keys[:, begin:], values[:, begin:], scale, cap)
    parts = [[part[None] for part in last]]
    if len(splits) > 1:
        shape = len(q), len(splits) - 1, -1, keys.shape[-1]
        past_keys, past_values = keys[:, :begin].reshape(shape), values[:, :begin].reshape(shape)
        full = attend_meaning(q[:, None], past_keys, past_values, scale, cap)
        parts.insert(0, [np.moveaxis(part, 1, 0) for part in full])
    outputs, tops, sums = (np.concatenate(same) for same in zip(*parts, strict=True))
    return combine_meaning(outputs, tops, sums)


def _attend_window(q: F32, keys: F32, values: F32, splits: Splits, scale: float, cap: float) -> F32:
    """As `_attend`, for splits of different lengths; those without rows add nothing. The last takes the new row too."""
    last = splits[-1][0], keys.shape[1]
    ranges = [(begin, end) for begin, end in splits[:-1] if end > begin] + [last]
    parts = [attend_meaning(q, keys[:, a:b], values[:, a:b], scale, cap) for a, b in ranges]
    outputs, tops, sums = (np.stack(same) for same in zip(*parts, strict=True))
    return combine_meaning(outputs, tops, sums)
