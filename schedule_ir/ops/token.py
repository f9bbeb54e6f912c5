"""The ends of a token: logits, greedy choice, stop, and the release of the appended K/V rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from schedule_ir.expr import Expr, tanh, var
from schedule_ir.layout import TILE_ROWS
from schedule_ir.op import Access, Args, How, Lane, Op

BEST_WORDS = 2
"""Packets of one SM's greedy candidate: the logit, then the token id (-1: a logit is not a number)."""


def logit_rule(divisor: float, cap: float) -> Expr:
    """From a product of the head to a logit: divided by `divisor` (Granite), soft-capped at `cap` (Gemma 2; 0: not)."""
    logit = var("logit") if divisor == 1 else var("logit") / float(divisor)
    return tanh(logit / float(cap)) * float(cap) if cap else logit


def sample_meaning(logits: npt.NDArray[np.float32]) -> int:
    """Greedy choice: the smallest index of the largest logit; -1 if a logit is NaN."""
    return -1 if np.isnan(logits).any() else int(np.argmax(logits))


def _head_access(args: Args, constants: Args, config: Args) -> list[Access]:
    rows = min(TILE_ROWS, config["vocab"] - args["row"])
    return [Access("logits", args["row"], rows, True, How.PLAIN)]


def _best_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return [Access("packets", args["dst"], BEST_WORDS, True, How.PACKET, args["phase"])]


def _sample_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return [Access("packets", args["src"], BEST_WORDS * config["sms"], False, How.PACKET, args["phase"])]


def _release_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return [Access("packets", args["dst"], 1, True, How.PACKET, args["phase"])]


OPS = (
    Op(
        "head", Lane.EPILOGUE, ("row",), (), "Head",
        "sum the partial sums of 16 vocabulary rows from `row`, norm scale, logit rule; store; keep the lane's best",
        _head_access, reduce_slots=-1,
    ),
    Op(
        "publish_best", Lane.EPILOGUE, ("dst", "phase"), (), "PublishBest",
        "publish the best logit and token of this SM (it starts over at the next token)",
        _best_access,
    ),
    Op(
        "sample", Lane.COMPUTE, ("src", "phase"), (), "Sample",
        "greedy choice over the SMs' best; every SM takes the same token, or stops",
        _sample_access,
    ),
    Op(
        "kv_release", Lane.EPILOGUE, ("dst", "phase"), (), "KvRelease",
        "release (gpu scope) the K/V rows that this SM appended in this token",
        _release_access,
    ),
)  # fmt: skip
