"""Small models, targets and knobs whose lowerings the tests and the mutation campaign work on."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from typing import Any

from amk.errors import AmkError
from amk.lower import Knobs, lower
from amk.model.graph import Layer, Linear, ModelGraph, Rope, TensorRef
from schedule_ir import Program, Tables, Target, encode


def graph(
    hidden: int = 48, intermediate: int = 64, layers: int = 2, heads: int = 4, kv_heads: int = 2, head_dim: int = 16,
    vocab: int = 40, *, tied: bool = True, bias: bool = False, window: int = 0,
) -> ModelGraph:  # fmt: skip
    """A model of that shape; `bias` gives q, k and v (but not o and MLP) biases, and down where layers are odd; those
    layers see the last `window` positions (0: all).
    """

    def linear(name: str, rows: int, columns: int, *, biased: bool = False) -> Linear:
        return Linear(TensorRef(name, (rows, columns)), TensorRef(name + ".bias", (rows,)) if biased else None)

    made = []
    for i in range(layers):
        p = f"model.layers.{i}."
        q, kv = heads * head_dim, kv_heads * head_dim
        made.append(
            Layer(
                TensorRef(p + "input_norm", (hidden,)), linear(p + "q", q, hidden, biased=bias),
                linear(p + "k", kv, hidden), linear(p + "v", kv, hidden, biased=bias), linear(p + "o", hidden, q),
                TensorRef(p + "post_norm", (hidden,)), linear(p + "gate", intermediate, hidden),
                linear(p + "up", intermediate, hidden),
                linear(p + "down", hidden, intermediate, biased=bias and i % 2 == 1), window=window * (i % 2),
            )
        )  # fmt: skip
    embed = TensorRef("model.embed", (vocab, hidden))
    head = Linear(embed if tied else TensorRef("lm_head", (vocab, hidden)))
    rope = Rope("default", head_dim, 1e4, 4096)
    return ModelGraph(
        "LlamaForCausalLM", hidden, intermediate, heads, kv_heads, head_dim, vocab, 1e-5, "silu", head_dim**-0.5, 4096,
        rope, embed, tuple(made), TensorRef("model.norm", (hidden,)), head, tied, (2,),
    )  # fmt: skip


def target(sms: int = 4, smem: int = 101376) -> Target:
    """A GPU with that many SMs."""
    return Target("toy", "sm_90", "sm90", sms, smem, 1 << 20, 64 << 30, 1e12)


KNOBS = Knobs(compute_warps=4, chunk_ksteps=4, max_splits=2, min_split_rows=16)


class Case:
    """A lowering with what it was made from."""

    def __init__(self, model: ModelGraph, gpu: Target, program: Program) -> None:
        self.model, self.gpu, self.program = model, gpu, program
        self.tables: Tables = encode(program)


@cache
def case(**shape: Any) -> Case:
    """A lowering of `graph(**shape)`; sms, max_seq and knobs may be among the arguments."""
    gpu = target(shape.pop("sms", 4))
    max_seq, knobs = shape.pop("max_seq", 64), shape.pop("knobs", KNOBS)
    model = graph(**shape)
    return Case(model, gpu, lower(model, gpu, max_seq, "fp16", knobs))


def random_case(rng: random.Random) -> Case:
    """A lowering of a random small shape, target and knobs, of those that the lowering accepts.

    Two layers at least and at most 8 query heads per K/V head: see the tests of the two exceptions.
    """
    while True:
        kv_heads, group = rng.choice([1, 2]), rng.choice([1, 2, 3, 8])
        model = graph(
            rng.choice([32, 48, 64, 100]), rng.choice([64, 72, 100]), rng.choice([2, 2, 3]), kv_heads * group,
            kv_heads, rng.choice([8, 16, 32]), rng.choice([17, 40, 64, 100]), tied=rng.random() < 0.5,
            bias=rng.random() < 0.3, window=rng.choice([0, 0, 0, 7, 24, 33]),
        )  # fmt: skip
        knobs = Knobs(
            compute_warps=rng.choice([2, 4, 8]), chunk_ksteps=rng.choice([4, 8, 32]),
            ring_stages=rng.choice([0, 3, 4, 6]), reduce_slots=rng.choice([1, 2, 4]), down_split=rng.choice([0, 1, 2]),
            down_pieces=rng.choice([0, 1, 2, 3, 4]), qkv_rows=rng.choice([16, 8]), o_rows=rng.choice([16, 8]),
            down_rows=rng.choice([16, 8]),
            min_split_rows=rng.choice([16, 32, 64]), max_splits=rng.choice([1, 2, 3, 4, 16]),
        )  # fmt: skip
        gpu = target(rng.choice([2, 3, 4, 4, 6]), rng.choice([101376, 166912, 232448]))
        try:
            program = lower(model, gpu, rng.choice([16, 17, 40, 64, 100]), rng.choice(["fp16", "bf16", "fp32"]), knobs)
        except AmkError:
            continue
        return Case(model, gpu, program)


def smaller_target(gpu: Target) -> Target:
    """The same GPU with one SM less."""
    return replace(gpu, sms=gpu.sms - 1)
