"""Plan -> runnable steps: each node bound to its weights, as one function of the values before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.progress import SILENT, Progress
from amk.runtime.cpu.kv import KvCache
from amk.runtime.cpu.nodes import (
    AddNode,
    AttentionNode,
    EmbedNode,
    GatherNode,
    LinearNode,
    Node,
    NormNode,
    Plan,
    Read,
)
from amk.tape import ATOM_VALUES, Bits, from_fragments
from schedule_ir.expr import evaluate
from schedule_ir.layout import KSTEP, split_begin, split_count, split_end
from schedule_ir.ops.activation import add_meaning, norm_meaning, split_bf16
from schedule_ir.ops.attention import attend_meaning, combine_meaning, rotate_meaning
from schedule_ir.ops.linear import gemv_meaning, publish_meaning, scale_meaning
from schedule_ir.program import Program

F32 = npt.NDArray[np.float32]
Values = list[Any]


@dataclass
class Step:
    """The token step in progress: `splits` are the (begin, end) of the active attention splits."""

    embedding: F32
    pos: int
    cos_sin: F32
    splits: list[tuple[int, int]]


Bound = Callable[[Values, Step], Any]


@dataclass(frozen=True)
class Constants:
    """What nodes are bound to: tapes uint16 [atoms * 256] by SM, norms [n, hidden_padded], biases, the K/V cache."""

    tapes: Sequence[Bits]
    norms: F32
    biases: F32
    kv: KvCache


def active_splits(program: Program, pos: int) -> list[tuple[int, int]]:
    """(begin, end) of the cached positions of each split that is active at `pos`."""
    env, config = {"pos": pos}, program.config
    count = int(evaluate(split_count(config), env))
    return [
        (int(evaluate(split_begin(config, s), env)), int(evaluate(split_end(config, s), env))) for s in range(count)
    ]


def bind_plan(plan: Plan, program: Program, constants: Constants, progress: Progress = SILENT) -> list[Bound]:
    """One function per node of the plan; weights are unpacked to fp32 here."""
    bound = []
    with progress.step("Unpacking tapes", len(plan.nodes)) as step:
        for node in plan.nodes:
            bound.append(_bind(node, program, constants))
            step.advance()
    return bound


def _bind(node: Node, program: Program, constants: Constants) -> Bound:
    match node:
        case EmbedNode():
            return lambda _values, step: step.embedding
        case AddNode():
            return _bind_add(node)
        case NormNode():
            return _bind_norm(node, program, constants)
        case GatherNode():
            return _bind_gather(node)
        case LinearNode():
            return _bind_linear(node, constants)
        case AttentionNode():
            return _bind_attention(node, program, constants.kv)


def read(values: Values, where: Read) -> F32:
    """The fp32 values of a range of packets: a view where it is one slice of one node."""
    if len(where) == 1:
        node, start, stop = where[0]
        view: F32 = values[node][start:stop]
        return view
    return np.concatenate([values[node][start:stop] for node, start, stop in where])


def _pad(x: F32, length: int) -> F32:
    return x if len(x) == length else np.pad(x, (0, length - len(x)))


def _bind_add(node: AddNode) -> Bound:
    def run(values: Values, _: Step) -> F32:
        return add_meaning(values[node.residual], np.stack([read(values, part) for part in node.parts]))

    return run


def _bind_norm(node: NormNode, program: Program, constants: Constants) -> Bound:
    weight = constants.norms[node.norm, : program.config["hidden"]]

    def run(values: Values, _: Step) -> tuple[F32, np.float32]:
        x, squares = norm_meaning(values[node.residual], weight)
        scale = scale_meaning(squares, program.config["hidden"], program.scalars["eps"])
        return _pad(x, node.ksteps * KSTEP), scale

    return run


def _bind_gather(node: GatherNode) -> Bound:
    def run(values: Values, _: Step) -> tuple[F32, np.float32]:
        return _pad(split_bf16(read(values, node.read)), node.ksteps * KSTEP), np.float32(1)

    return run


def unit_atoms(node: LinearNode, tapes: Sequence[Bits]) -> Bits:
    """uint16 [units, ksteps, 256]: a node's units, as they lie in the tapes."""
    atoms = [tape.reshape(-1, ATOM_VALUES) for tape in tapes]
    return np.stack([atoms[sm][at : at + node.ksteps] for sm, at in zip(node.sms, node.offsets, strict=True)])


def _bind_linear(node: LinearNode, constants: Constants) -> Bound:
    weights = from_fragments(unit_atoms(node, constants.tapes))
    bias = None
    if node.biases:
        bias = np.stack([constants.biases[offset : offset + weights.shape[1]] for offset in node.biases])

    def run(values: Values, _: Step) -> F32:
        x, scale = values[node.x]
        sums = gemv_meaning(weights, x)
        return publish_meaning(sums, scale if node.scaled else np.float32(1), bias, node.gated).reshape(-1)

    return run


def _bind_attention(node: AttentionNode, program: Program, kv: KvCache) -> Bound:
    dim, scale = program.config["head_dim"], program.scalars["attention_scale"]
    rows = _slice(node.kv_heads)

    def run(values: Values, step: Step) -> F32:
        q = rotate_meaning(read(values, node.q).reshape(-1, node.queries, dim), step.cos_sin)
        k = rotate_meaning(read(values, node.k).reshape(-1, dim), step.cos_sin)
        kv.append(rows, step.pos, k, read(values, node.v).reshape(-1, dim))
        past = slice(0, step.pos + 1)
        return _attend(q, kv.keys[rows, past], kv.values[rows, past], step.splits, scale).reshape(-1)

    return run


def _slice(rows: tuple[int, ...]) -> npt.NDArray[np.intp] | slice:
    """Consecutive rows as a slice, which NumPy does not copy."""
    if rows == tuple(range(rows[0], rows[0] + len(rows))):
        return slice(rows[0], rows[0] + len(rows))
    return np.array(rows, np.intp)


def _attend(q: F32, keys: F32, values: F32, splits: list[tuple[int, int]], scale: float) -> F32:
    """Queries [b, n, d] over rows [b, pos + 1, d], split by split, merged: [b, n, d].

    All splits but the last have the same length, and are attended in one go; the last one takes the new row too.
    """
    begin, _ = splits[-1]
    last = attend_meaning(q, keys[:, begin:], values[:, begin:], scale)
    parts = [[part[None] for part in last]]
    if len(splits) > 1:
        shape = len(q), len(splits) - 1, -1, keys.shape[-1]
        full = attend_meaning(q[:, None], keys[:, :begin].reshape(shape), values[:, :begin].reshape(shape), scale)
        parts.insert(0, [np.moveaxis(part, 1, 0) for part in full])
    outputs, tops, sums = (np.concatenate(same) for same in zip(*parts, strict=True))
    return combine_meaning(outputs, tops, sums)
