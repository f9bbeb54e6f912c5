"""Compute lane: grouped-query attention over splits of the cached positions (flash-decoding, arXiv 2311.01282)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from schedule_ir.expr import at_least, ceil_div, equals
from schedule_ir.layout import KV_BLOCK, POS, split_begin, split_count, split_end
from schedule_ir.op import Access, Args, Cost, How, Lane, Op
from schedule_ir.ops.stream import kv_chunks

Array = npt.NDArray[np.float32]


def rotate_meaning(x: Array, cos_sin: Array) -> Array:
    """RoPE on the leading 2 * len(cos_sin) dims of x [..., head_dim]: pairs (d, d + dim/2), as in Hugging Face."""
    half = cos_sin.shape[0]
    a, b = x[..., :half], x[..., half : 2 * half]
    cos, sin = cos_sin[:, 0], cos_sin[:, 1]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, x[..., 2 * half :]], -1)


def attend_meaning(q: Array, keys: Array, values: Array, scale: float) -> tuple[Array, Array, Array]:
    """Unnormalised attention of queries [.., n, d] over rows [.., rows, d]: output [.., n, d], maximum and sum [.., n].

    The maximum is of the scores in base-2 logarithm units, as in the kernel.
    """
    scores = (q @ keys.swapaxes(-1, -2)) * np.float32(scale * np.log2(np.e))
    top = scores.max(-1)
    weights = np.exp2(scores - top[..., None])
    return weights @ values, top, weights.sum(-1)


def combine_meaning(outputs: Array, tops: Array, sums: Array) -> Array:
    """Merge splits: outputs [splits, ..., d], tops and sums [splits, ...] -> normalised output [..., d]."""
    weights = np.exp2(tops - tops.max(0))
    total = (weights * sums).sum(0)
    return np.asarray((weights[..., None] * outputs).sum(0) / total[..., None], np.float32)


def _attend_access(args: Args, constants: Args, config: Args) -> list[Access]:
    """Queries are needed by every active split, the new K/V row only by the last one, which appends it."""
    width, phase, split = constants["queries"] * config["head_dim"], args["phase"], args["split"]
    count = split_count(config)
    active, last = at_least(count, split + 1), equals(count, split + 1)
    accesses = [
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
    if args["append"]:
        row = POS + args["kv_head"] * config["max_seq_padded"]
        accesses.append(Access("kv", row, 1, True, How.PLAIN, active=last))
    return accesses


def _attend_cost(args: Args, constants: Args, config: Args) -> Cost:
    rows = split_end(config, args["split"]) - split_begin(config, args["split"])
    return Cost(flops=ceil_div(rows, KV_BLOCK) * (KV_BLOCK * 2 * config["head_dim_padded"] * constants["queries"]))


def _attend_check(constants: Args, config: Args) -> list[str]:
    if not 1 <= constants["queries"] <= 8:
        return [f"{constants['queries']} queries per attention task: 1 to 8 fit the mma tile"]
    return []


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
        ("split", "kv_head", "phase", "q_src", "k_src", "v_src", "part_dst", "out_dst", "append"), ("queries",),
        "Attend",
        "attention of a group of query heads over one split of the cached rows (and the new row, in the last split)",
        _attend_access, _attend_cost, _attend_check, kv_chunks,
    ),
    Op(
        "combine", Lane.COMPUTE, ("part_src", "out_dst", "phase"), (), "Combine",
        "merge the splits of one head (where there are several) and publish its attention output",
        _combine_access,
    ),
)  # fmt: skip
