"""Plan -> runnable steps: each node bound to its weights, as one function of the values before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from amk.progress import SILENT, Progress
from amk.runtime.cpu.attention import bind_attention
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
)
from amk.runtime.cpu.step import F32, Bound, Step, Values, read
from amk.tape import ATOM_VALUES, Bits, from_fragments, unfold
from schedule_ir.expr import NUMPY, evaluate
from schedule_ir.layout import KSTEP, TILE_ROWS
from schedule_ir.ops.activation import add_meaning, add_post_meaning, norm_meaning, split_bf16
from schedule_ir.ops.linear import ACTIVATIONS, gemv_meaning, publish_meaning, resume_meaning, scale_meaning
from schedule_ir.ops.token import logit_rule
from schedule_ir.program import Program


@dataclass(frozen=True)
class Constants:
    """What nodes are bound to: tapes uint16 [atoms * 256] by SM, norms [n, hidden_padded], biases, the K/V cache."""

    tapes: Sequence[Bits]
    norms: F32
    biases: F32
    kv: KvCache


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
            return _bind_embed(program.scalar("embed_scale"))
        case AddNode():
            return _bind_add(node, program, constants)
        case NormNode():
            return _bind_norm(node, program, constants)
        case GatherNode():
            return _bind_gather(node)
        case LinearNode():
            return _bind_linear(node, program, constants)
        case AttentionNode():
            return bind_attention(node, program, constants.biases, constants.kv)


def _pad(x: F32, length: int) -> F32:
    return x if len(x) == length else np.pad(x, (0, length - len(x)))


def _bind_embed(scale: float) -> Bound:
    return lambda _values, step: step.embedding if scale == 1 else step.embedding * np.float32(scale)


def _bind_add(node: AddNode, program: Program, constants: Constants) -> Bound:
    multiplier, eps = program.scalar("residual_multiplier"), program.scalar("eps")
    post = None if node.post is None else constants.norms[node.post, : program.config["hidden"]]

    def run(values: Values, _: Step) -> F32:
        parts = np.stack([read(values, part) for part in node.parts])
        if post is None:
            return add_meaning(values[node.residual], parts, multiplier)
        return add_post_meaning(values[node.residual], parts, post, eps, multiplier)

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


def unit_atoms(node: LinearNode, tapes: Sequence[Bits]) -> list[Bits]:
    """uint16 [units, atoms, 256] of each factor: a node's units, as they lie in the tapes."""
    atoms = [tape.reshape(-1, ATOM_VALUES) for tape in tapes]
    return [
        np.stack([atoms[sm][at : at + factor.atoms] for sm, at in zip(node.sms, factor.offsets, strict=True)])
        for factor in node.factors
    ]


def _rows(node: LinearNode, tiles: F32) -> F32:
    return tiles if node.unit_rows == TILE_ROWS else unfold(tiles)


def _bind_linear(node: LinearNode, program: Program, constants: Constants) -> Bound:
    first, *rest = [_rows(node, from_fragments(atoms)) for atoms in unit_atoms(node, constants.tapes)]
    xs = [factor.x for factor in node.factors]
    activation = tuple(ACTIVATIONS)[program.config["activation"]]
    rule = logit_rule(program.scalar("logits_divisor"), program.scalar("logits_cap"))
    bias = None
    if node.biases:
        bias = np.stack([constants.biases[offset : offset + node.unit_rows] for offset in node.biases])

    def run(values: Values, _: Step) -> F32:
        sums = gemv_meaning(first, values[xs[0]][0])
        for x, tiles in zip(xs[1:], rest, strict=True):
            sums = resume_meaning(sums, tiles, values[x][0])
        scale = values[xs[-1]][1]
        result = publish_meaning(sums, scale if node.scaled else np.float32(1), bias, node.gated, activation)
        return np.asarray(evaluate(rule, {"logit": result}, NUMPY) if node.head else result, np.float32).reshape(-1)

    return run
