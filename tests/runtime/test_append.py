"""The new K/V row is stored late, off the chain of hand-offs, but before anything overwrites or releases it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedule_ir import REGISTRY, Program, Section
from schedule_ir.op import Lane
from tests.runtime.models import logits_with, random_model, relative_error, small_program, tokens_of

MANY_HEADS: dict[str, Any] = {"num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 8}
WINDOWS: dict[str, Any] = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 20}


def compute_ops(program: Program, sm: int) -> list[str]:
    return [program.variants[task.opcode].op for task in program.lanes[sm, Lane.COMPUTE, Section.BODY]]


@pytest.mark.parametrize("windows", [{}, WINDOWS], ids=["all positions", "windows"])
@pytest.mark.parametrize("knobs", [{}, {"max_queries": 2}], ids=["", "query blocks"])
@pytest.mark.parametrize("heads", [{}, MANY_HEADS], ids=["2 K/V heads", "6 K/V heads"])
def test_logits_do_not_depend_on_who_attends(
    heads: dict[str, Any], knobs: dict[str, int], windows: dict[str, Any]
) -> None:
    model, ids = random_model(**heads | windows), tokens_of(60)
    everyone = logits_with(model, ids)
    for sms in (1, 2, 5):
        assert relative_error(logits_with(model, ids, sms, **knobs), everyone) < 1e-5


def test_an_append_waits_for_the_end_of_the_mlp() -> None:
    program = small_program(random_model(num_hidden_layers=1))
    late = [ops for sm in range(program.sms) if "append" in (ops := compute_ops(program, sm))]
    assert late
    for ops in late:
        # attend, (combine,) (o,) add_norm, gate/up, append, a unit of gate/up or down, add_norm
        assert ops.index("attend") < ops.index("add_norm") < ops.index("append") < len(ops) - 2
        assert ops.count("append") == 1


def test_no_unit_of_gate_and_up_waits_for_an_append_but_in_the_last_layer() -> None:
    program = small_program(random_model(num_hidden_layers=2))
    for sm in range(program.sms):
        ops = compute_ops(program, sm)
        first_layer = ops[: [i for i, op in enumerate(ops) if op == "add_norm"][1]]
        if "append" in first_layer:
            after = first_layer[first_layer.index("append") + 1 :]
            assert not after or after[0] == "gather", "a unit of down gathers first"


def test_where_the_next_head_overwrites_the_row_it_is_stored_at_once() -> None:
    program = small_program(random_model(**MANY_HEADS, num_hidden_layers=1), 2)
    for sm in range(2):
        ops = [op for op in compute_ops(program, sm) if op in ("attend", "append")]
        assert ops == ["attend", "append"] * 3


def test_the_query_blocks_of_a_head_share_the_row() -> None:
    program = small_program(random_model(num_attention_heads=8, num_hidden_layers=1), 5, max_queries=2, max_splits=1)
    ops = [[op for op in compute_ops(program, sm) if op in ("attend", "append")] for sm in range(5)]
    assert sorted(ops) == [[], [], []] + [["attend", "attend", "append"]] * 2


def test_every_sm_that_attends_acquires_where_the_first_layer_attends() -> None:
    """Also where its own first attention is in the last layer: see `AttentionTasks._acquire`."""
    program = small_program(random_model())
    later = 0
    for sm in range(program.sms):
        ops = [program.variants[task.opcode].op for task in program.lanes[sm, Lane.STREAM, Section.BODY]]
        heads = [task.args[0] for task in program.lanes[sm, Lane.STREAM, Section.BODY]
                 if program.variants[task.opcode].op == "copy_kv"]  # fmt: skip
        qkv = sum(tiles.sms.count(sm) for tiles in program.tiles if tiles.name == "layers.0.qkv")
        assert [i for i, op in enumerate(ops) if op == "kv_acquire"] == [qkv] * bool(heads)
        later += bool(heads) and min(heads) >= 2
    assert later


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    hidden=st.integers(8, 100).map(lambda n: 2 * n),
    intermediate=st.integers(24, 600),
    kv_heads=st.integers(1, 9),
    group=st.integers(1, 3),
    sms=st.integers(1, 40),
    splits=st.sampled_from([1, 2, 4, 16]),
    pieces=st.integers(1, 3),
    layers=st.integers(1, 2),
)
def test_every_row_is_stored_before_it_is_overwritten_and_released(
    hidden: int, intermediate: int, kv_heads: int, group: int, sms: int, splits: int, pieces: int, layers: int
) -> None:
    model = random_model(
        hidden_size=hidden, intermediate_size=intermediate, num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads, head_dim=8, num_hidden_layers=layers,
    )  # fmt: skip
    program = small_program(model, sms, max_splits=splits, down_pieces=pieces)
    assert appended(program) == {
        (row, split) for row in range(layers * kv_heads) for split in range(program.config["max_splits"])
    }


def appended(program: Program) -> set[tuple[int, int]]:
    """(K/V head, split) of all appends; fails where one is out of place."""
    found: list[tuple[int, int]] = []
    for sm in range(program.sms):
        held: dict[int, int] = {}
        unreleased = False
        for task in program.lanes[sm, Lane.COMPUTE, Section.BODY]:
            variant = program.variants[task.opcode]
            args = dict(zip(variant.spec.fields, task.args, strict=True))
            if variant.op == "attend":
                held[args["split"]] = args["kv_head"]
            elif variant.op == "append":
                assert held[args["split"]] == args["kv_head"]
                found.append((args["kv_head"], args["split"]))
                unreleased = True
            elif REGISTRY[variant.op].reduce_slots > 0:
                unreleased = False  # the epilogue comes to kv_release after it has taken these sums
        assert not unreleased
    assert len(found) == len(set(found))
    return set(found)
