"""Compute lane: bring an activation vector into shared memory as mma B fragments.

Every SM keeps its own copy of the residual stream (fp32, shared memory), and adds each layer's results to it itself,
so the residual never travels. x is stored as bf16 high and low halves, which together carry 16 bits of mantissa.
RMSNorm's 1/rms is linear and is applied by the epilogue lane; only the weight is applied here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from schedule_ir.op import Access, Args, How, Lane, Op

Vector = npt.NDArray[np.float32]


def split_bf16(x: Vector) -> Vector:
    """x as the sum of two bf16 numbers, which is what the tensor cores see (both rounded to nearest even)."""
    high = _round_bf16(x)
    return high + _round_bf16(x - high)


def _round_bf16(x: Vector) -> Vector:
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def norm_meaning(residual: Vector, weight: Vector) -> tuple[Vector, np.float32]:
    """(x, sum of squares): x = residual * weight; the consumer multiplies by rsqrt(sum / hidden + eps)."""
    return split_bf16(residual * weight), np.float32(np.dot(residual, residual))


def add_meaning(residual: Vector, parts: Vector, multiplier: float = 1.0) -> Vector:
    """residual + multiplier * the K-split parts [parts, hidden], added in order."""
    for part in parts:
        residual = residual + (part if multiplier == 1 else np.float32(multiplier) * part)
    return residual


def add_post_meaning(residual: Vector, parts: Vector, post: Vector, eps: float, multiplier: float = 1.0) -> Vector:
    """residual + multiplier * RMSNorm(sum of the parts [parts, hidden], in order) with weight `post` [hidden]."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    mean = np.float64(np.dot(total, total)) / len(total)
    return np.asarray(residual + total * np.float32(multiplier / np.sqrt(mean + eps)) * post, np.float32)


def _embed_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return [Access("norms", args["norm"] * config["hidden_padded"], config["hidden"], False, How.PLAIN)]


def _add_access(args: Args, constants: Args, config: Args) -> list[Access]:
    reads = [
        Access("packets", args["src"] + part * constants["stride"], config["hidden"], False, How.PACKET, args["phase"])
        for part in range(constants["parts"])
    ]
    return [Access("norms", args["norm"] * config["hidden_padded"], config["hidden"], False, How.PLAIN), *reads]


def _post_access(args: Args, constants: Args, config: Args) -> list[Access]:
    post = Access("norms", args["post"] * config["hidden_padded"], config["hidden"], False, How.PLAIN)
    return [post, *_add_access(args, constants, config)]


def _gather_access(args: Args, constants: Args, config: Args) -> list[Access]:
    return [Access("packets", args["src"], constants["length"], False, How.PACKET, args["phase"])]


def _fits_activation(constants: Args, config: Args) -> list[str]:
    need = constants["ksteps"]
    if need > config["activation_ksteps"]:
        return [f"{need} k-steps do not fit the activation buffer of {config['activation_ksteps']}"]
    return []


OPS = (
    Op(
        "embed_norm", Lane.COMPUTE, ("norm",), ("ksteps",), "EmbedNorm",
        "residual = scaled embedding row of the token; x = residual * norm weight; sum of squares",
        _embed_access, check=_fits_activation,
    ),
    Op(
        "add_norm", Lane.COMPUTE, ("src", "phase", "norm"), ("ksteps", "parts", "stride"), "AddNorm",
        "residual += multiplier * the parts at src; x = residual * norm weight; sum of squares",
        _add_access, check=_fits_activation,
    ),
    Op(
        "add_post_norm", Lane.COMPUTE, ("src", "phase", "post", "norm"), ("ksteps", "parts", "stride"), "AddPostNorm",
        "residual += multiplier * RMSNorm of the sum of the parts at src; x = residual * norm weight; sum of squares",
        _post_access, check=_fits_activation,
    ),
    Op(
        "gather", Lane.COMPUTE, ("src", "phase"), ("ksteps", "length"), "Gather",
        "x = `length` packets from src",
        _gather_access, check=_fits_activation,
    ),
)  # fmt: skip
