"""Matrix-vector products: partial sums on the compute lane, everything after them on the epilogue lane."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from schedule_ir.expr import NUMPY, Expr, evaluate, exp, tanh, var
from schedule_ir.layout import ATOM_BYTES, KSTEP, TILE_ROWS, UNIT_ROWS, chunk_sizes
from schedule_ir.op import Access, Args, Cost, How, Instance, Lane, Op
from schedule_ir.ops.activation import Vector

Array = npt.NDArray[np.float32]

RATIO = math.sqrt(2 / math.pi)
SILU: Expr = var("gate") / (exp(-var("gate")) + 1.0)
"""SiLU (arXiv 1702.03118): gate * sigmoid(gate)."""

GELU_TANH: Expr = var("gate") * 0.5 * (tanh((var("gate") * var("gate") * 0.044715 + 1.0) * var("gate") * RATIO) + 1.0)
"""GELU (arXiv 1606.08415), its tanh approximation."""

ACTIVATIONS: dict[str, Expr] = {"silu": SILU, "gelu_tanh": GELU_TANH}
"""By name; `config["activation"]` of a Program is the index."""
GATED: Expr = var("activated") * var("up")


def gemv_meaning(tiles: Array, x: Vector) -> Array:
    """Products [units, rows] of weight units [units, rows, K] and x [K], accumulated in fp32."""
    result: Array = np.matmul(tiles.reshape(-1, tiles.shape[-1]), x).reshape(tiles.shape[:-1])
    return result


def resume_meaning(parked: Array, tiles: Array, x: Vector) -> Array:
    """Parked sums [units, rows] with the products of the next part of the units [units, rows, K] and x [K], in fp32.

    `gemv_park` without `resume` is `gemv_meaning`; with it, and in `gemv_resume`, it is this.
    """
    return parked + gemv_meaning(tiles, x)


def scale_meaning(sum_of_squares: np.float32, hidden: int, eps: float) -> np.float32:
    """RMSNorm's 1/rms (arXiv 1910.07467) from the sum of squares of the residual."""
    return np.float32(1.0 / np.sqrt(np.float64(sum_of_squares) / hidden + eps))


def publish_meaning(sums: Array, scale: np.float32, bias: Array | None, gated: bool, activation: str = "silu") -> Array:
    """What the epilogue publishes of products [units, rows]: a value a row, or 8 where gate and up are paired.

    In a gated unit rows 0-7 are gate rows and rows 8-15 the up rows of the same outputs.
    """
    values: Any = sums * scale
    if bias is not None:
        values = values + bias
    if not gated:
        return np.asarray(values, np.float32)
    gate, up = values[..., :8], values[..., 8:]
    with np.errstate(over="ignore"):
        activated = evaluate(ACTIVATIONS[activation], {"gate": gate}, NUMPY)
    return np.asarray(evaluate(GATED, {"activated": activated, "up": up}, NUMPY), np.float32)


def _gemv_cost(args: Args, constants: Args, config: Args) -> Cost:
    return Cost(flops=constants["ksteps"] * KSTEP * TILE_ROWS)


def _gemv_chunks(args: Args, constants: Args, config: Args) -> int:
    return len(chunk_sizes(constants["ksteps"], constants["chunk_ksteps"]))


def _gemv_instance(constants: Args, config: Args, resume: int, park: int) -> Instance:
    """Gemv<chunk, rest>::run(.., full chunks, a warp's k-steps to the second half of K, resume, park): products of all
    lengths, and of units of 16 and of 8 rows, share code.
    """
    chunk = min(constants["chunk_ksteps"], constants["ksteps"])
    full, rest = divmod(constants["ksteps"], chunk)
    half = constants["ksteps"] // config["compute_warps"] if constants["unit_rows"] < TILE_ROWS else 0
    return (chunk, rest), (full, half, resume, park)


def _gemv_check(constants: Args, config: Args) -> list[str]:
    total, chunk, warps = constants["ksteps"], constants["chunk_ksteps"], config["compute_warps"]
    broken = []
    if constants["unit_rows"] not in UNIT_ROWS:
        broken.append(f"units of {constants['unit_rows']} rows; there are units of 16 and of 8")
    elif constants["unit_rows"] < TILE_ROWS and total % warps:
        broken.append(f"{total} tiles of a unit of 8 rows: not the same number for each of {warps} compute warps")
    if chunk * ATOM_BYTES > config["slot_bytes"]:
        broken.append(f"chunk of {chunk} k-steps does not fit a ring slot of {config['slot_bytes']} bytes")
    if total > chunk and chunk % warps:
        broken.append(f"chunk of {chunk} k-steps is not a multiple of {warps} compute warps")
    return broken


def _publish_access(args: Args, constants: Args, config: Args) -> list[Access]:
    rows = constants["unit_rows"]
    count = rows // 2 if constants["gated"] else rows
    accesses = [Access("packets", args["dst"], count, True, How.PACKET, args["phase"])]
    if constants["biased"]:
        accesses.insert(0, Access("biases", args["bias"], rows, False, How.PLAIN))
    return accesses


def _publish_instance(constants: Args, config: Args) -> Instance:
    flags = tuple(constants[name] for name in ("scaled", "gated", "biased"))
    return (), (*flags, int(constants["unit_rows"] < TILE_ROWS))


def _publish_check(constants: Args, config: Args) -> list[str]:
    rows = constants["unit_rows"]
    if rows not in UNIT_ROWS or (constants["gated"] and rows != TILE_ROWS):
        return [f"units of {rows} rows, gated: {constants['gated']}; there are units of 16 rows, and of 8 ungated"]
    return []


OPS = (
    Op(
        "gemv", Lane.COMPUTE, (), ("ksteps", "chunk_ksteps", "unit_rows"), "Gemv",
        "multiply the next unit in the ring, of `ksteps` tiles, with x; partial sums of each warp go to a reduction "
        "slot. A tile of a unit of 8 rows is two k-steps: j in its first rows, j + `ksteps` in the others",
        cost=_gemv_cost, check=_gemv_check, chunks=_gemv_chunks, reduce_slots=1,
        instance=lambda constants, config: _gemv_instance(constants, config, resume=0, park=0),
    ),
    Op(
        "gemv_park", Lane.COMPUTE, ("accumulator",), ("ksteps", "chunk_ksteps", "unit_rows", "resume"), "Gemv",
        "multiply the next part of a unit with x, added to what is in `accumulator` (`resume`) or to nothing; "
        "the sums stay there",
        cost=_gemv_cost, check=_gemv_check, chunks=_gemv_chunks,
        instance=lambda constants, config: _gemv_instance(constants, config, constants["resume"], park=1),
    ),
    Op(
        "gemv_resume", Lane.COMPUTE, ("accumulator",), ("ksteps", "chunk_ksteps", "unit_rows"), "Gemv",
        "multiply the last part of a unit with x, added to what is in `accumulator`; to a reduction slot as gemv",
        cost=_gemv_cost, check=_gemv_check, chunks=_gemv_chunks, reduce_slots=1,
        instance=lambda constants, config: _gemv_instance(constants, config, resume=1, park=0),
    ),
    Op(
        "publish", Lane.EPILOGUE, ("dst", "phase", "bias"), ("scaled", "gated", "biased", "unit_rows"), "Publish",
        "sum the warps' partial sums in order; norm scale, bias, activation; publish as packets at dst",
        _publish_access, check=_publish_check, reduce_slots=-1, instance=_publish_instance,
    ),
)  # fmt: skip
