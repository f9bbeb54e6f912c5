"""Compute lane: grouped-query attention over splits of the cached positions (flash-decoding, arXiv 2311.01282)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from schedule_ir.expr import NUMPY, Expr, ExprLike, at_least, ceil_div, equals, evaluate, tanh, var
from schedule_ir.layout import KV_BLOCK, POS, split_count
from schedule_ir.op import Access, Args, Cost, How, Instance, Lane, Op
from schedule_ir.ops.stream import check_window, kv_active, kv_chunks, windowed

Array = npt.NDArray[np.float32]

LOG2E = math.log2(math.e)
PER_HEAD, PROJECTION = 1, 2
"""What q and k are normalised over (`qk_norm`, 0: not at all): each head (Qwen3), or all heads together (OLMo 2)."""


def score_rule(cap: float) -> tuple[float, Expr]:
    """(factor that q is multiplied by on top of the attention scale, rule from q k to a score in base-2 logarithms).

    A cap is Gemma 2's soft cap: score = cap tanh(score / cap). Without one the rule is the score itself.
    """
    raw = var("raw")
    return (1 / cap, tanh(raw) * (cap * LOG2E)) if cap else (LOG2E, raw)


def head_norm_meaning(x: Array, weight: Array, eps: float, squares: Array | None = None, width: int = 0) -> Array:
    """RMSNorm of x [..., head_dim] with weight of the same last axis, over each head.

    Where the norm is over more than the head: `squares` is the sum of squares over all its `width` elements.
    """
    if squares is None:
        squares, width = (x * x).sum(-1, keepdims=True), x.shape[-1]
    return np.asarray(x * np.float32(1) / np.sqrt(squares / np.float32(width) + np.float32(eps)) * weight, np.float32)


def rotate_meaning(x: Array, cos_sin: Array) -> Array:
    """RoPE on the leading 2 * len(cos_sin) dims of x [..., head_dim]: pairs (d, d + dim/2), as in Hugging Face."""
    half = cos_sin.shape[0]
    a, b = x[..., :half], x[..., half : 2 * half]
    cos, sin = cos_sin[:, 0], cos_sin[:, 1]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)


def attend_meaning(q: Array, keys: Array, values: Array, scale: float, cap: float = 0.0) -> tuple[Array, Array, Array]:
    """Unnormalised attention of queries [.., n, d] over rows [.., rows, d]: output [.., n, d], maximum and sum [.., n].

    The maximum is of the scores in base-2 logarithm units, as in the kernel.
    """
    factor, rule = score_rule(cap)
    scores = evaluate(rule, {"raw": (q @ keys.swapaxes(-1, -2)) * np.float32(scale * factor)}, NUMPY)
    top = scores.max(-1)
    weights = np.exp2(scores - top[..., None])
    return weights @ values, top, weights.sum(-1)


def combine_meaning(outputs: Array, tops: Array, sums: Array) -> Array:
    """Merge splits: outputs [splits, ..., d], tops and sums [splits, ...] -> normalised output [..., d]."""
    weights = np.exp2(tops - tops.max(0))
    total = (weights * sums).sum(0)
    return np.asarray((weights[..., None] * outputs).sum(0) / total[..., None], np.float32)


def append_meaning(cache: Array, heads: npt.NDArray[np.intp] | slice, pos: int, rows: Array) -> None:
    """Store new rows [n, d], rounded to what the cache holds, at `pos` of rows `heads` of a cache [.., max_seq, d]."""
    cache[heads, pos] = rows


def _attend_access(args: Args, constants: Args, config: Args) -> list[Access]:
    """Queries are needed by every active split, the new K/V row only by the last one."""
    width, phase, split = constants["queries"] * config["head_dim"], args["phase"], args["split"]
    count = split_count(config)
    active, last = at_least(count, split + 1), equals(count, split + 1)
    accesses = [
        *_norm_access(args, constants, config, active, last),
        Access("packets", args["q_src"], width, False, How.PACKET, phase, active=active),
        Access("packets", args["k_src"], config["head_dim"], False, How.PACKET, phase, active=last),
        Access("packets", args["v_src"], config["head_dim"], False, How.PACKET, phase, active=last),
        Access(
            "packets", args["part_dst"] + split * config["heads"] * config["partial_stride"],
            constants["queries"] * config["partial_stride"], True, How.PACKET, phase,
            active=at_least(count, max(2, split + 1)),
        ),
    ]  # fmt: skip
    if split == 0:
        accesses.append(Access("packets", args["out_dst"], width, True, How.PACKET, phase, active=equals(count, 1)))
    return accesses


def _append_access(args: Args, constants: Args, config: Args) -> list[Access]:
    row = POS + args["kv_head"] * config["max_seq_padded"]
    last = equals(split_count(config), args["split"] + 1)
    return [Access("kv", row, 1, True, How.PLAIN, active=last)]


def _norm_access(args: Args, constants: Args, config: Args, active: ExprLike, last: ExprLike) -> list[Access]:
    """The norm weights of this task's heads; for a norm over the projection also all of q (and k) for its squares."""
    dim, queries, phase = config["head_dim"], constants["queries"] * config["head_dim"], args["phase"]
    if constants["qk_norm"] == PER_HEAD:
        return [Access("biases", args["norm"], 2 * dim, False, How.PLAIN)]
    if constants["qk_norm"] != PROJECTION:
        return []
    q_width, k_width = config["heads"] * dim, config["kv_heads"] * dim
    return [
        Access("biases", args["norm"] + args["q_src"] - args["qkv"], queries, False, How.PLAIN),
        Access("biases", args["norm"] + args["k_src"] - args["qkv"], dim, False, How.PLAIN),
        Access("packets", args["qkv"], q_width, False, How.PACKET, phase, active=active),
        Access("packets", args["qkv"] + q_width, k_width, False, How.PACKET, phase, active=last),
    ]


def _attend_cost(args: Args, constants: Args, config: Args) -> Cost:
    rows = kv_active(args["split"], constants["window"], config)
    return Cost(flops=ceil_div(rows, KV_BLOCK) * (KV_BLOCK * 2 * config["head_dim_padded"] * constants["queries"]))


def _attend_instance(constants: Args, config: Args) -> Instance:
    """Attend<queries, q/k norm>::run(.., window, rope): layers that differ in these share code."""
    return (constants["queries"], constants["qk_norm"]), (constants["window"], constants["rope"])


def _attend_check(constants: Args, config: Args) -> list[str]:
    if not 1 <= constants["queries"] <= 8:
        return [f"{constants['queries']} queries per attention task: 1 to 8 fit the mma tile"]
    if not 0 <= constants["rope"] <= config["rope_tables"]:
        return [f"rope table {constants['rope']} is not one of the {config['rope_tables']} there are"]
    return check_window(constants, config)


def _combine_access(args: Args, constants: Args, config: Args) -> list[Access]:
    count = split_count(config)
    step = config["heads"] * config["partial_stride"]
    accesses = [
        Access(
            "packets", args["part_src"] + split * step, config["partial_stride"], False, How.PACKET, args["phase"],
            active=at_least(count, max(2, split + 1)),
        )
        for split in range(config["max_splits"])
    ]  # fmt: skip
    several = at_least(count, 2)
    output = Access("packets", args["out_dst"], config["head_dim"], True, How.PACKET, args["phase"], active=several)
    return [*accesses, output]


OPS = (
    Op(
        "attend", Lane.COMPUTE,
        ("split", "kv_head", "phase", "q_src", "k_src", "v_src", "part_dst", "out_dst", "qkv", "norm"),
        ("queries", "window", "rope", "qk_norm"), "Attend",
        "attention of a group of query heads over one split of the cached rows (and the new row, in the last split): "
        "q and k are normed with the weights at `norm` of the biases (qk_norm; q, then k, as in `qkv`) and rotated by "
        "table `rope` (from 1, 0: not at all); the last `window` positions are seen (0: all)",
        _attend_access, _attend_cost, _attend_check, kv_chunks, _attend_instance,
    ),
    Op(
        "append", Lane.COMPUTE, ("kv_head", "split"), ("window",), "Append",
        "store the new K/V row, which attend left in shared memory, if the split is the last active one",
        _append_access, instance=windowed,
    ),
    Op(
        "combine", Lane.COMPUTE, ("part_src", "out_dst", "phase"), (), "Combine",
        "merge the splits of one head (where there are several) and publish its attention output",
        _combine_access,
    ),
)  # fmt: skip
