"""The down projection in pieces of K: the same logits as in one go, and broken chains refused by the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amk.errors import RejectedProgramError
from amk.runtime.cpu.nodes import LinearNode
from amk.runtime.cpu.plan import make_plan
from schedule_ir import Program, Section, Task
from schedule_ir.op import Lane
from tests.runtime.models import edited, logits_with, random_model, relative_error, small_program, tokens_of

NOISE = 1e-6
"""Of fp32 sums in another order."""

CASES: dict[str, tuple[dict[str, Any], int, dict[str, int]]] = {
    "the last piece is shorter": ({}, 132, {"down_pieces": 3}),
    "not a multiple of 16": ({"intermediate_size": 202}, 132, {"down_pieces": 2}),
    "as many as there are": ({"intermediate_size": 90}, 132, {"down_pieces": 8}),
    "several units per SM": ({"hidden_size": 200, "intermediate_size": 600}, 3, {"down_pieces": 4}),
    "one SM": ({"intermediate_size": 300}, 1, {"down_pieces": 2}),
    "SMs without down": ({"hidden_size": 20}, 132, {"down_pieces": 2}),
    "in chunks": ({"intermediate_size": 2000}, 40, {"down_pieces": 3, "chunk_ksteps": 16}),
    "K-parts": ({"intermediate_size": 1000}, 20, {"down_pieces": 3, "down_split": 2}),
    "K-parts of one piece and of several": ({"intermediate_size": 650}, 20, {"down_pieces": 3, "down_split": 3}),
    "biases": ({"mlp_bias": True}, 132, {"down_pieces": 3}),
    "biases of K-parts": ({"mlp_bias": True, "intermediate_size": 600}, 7, {"down_pieces": 2, "down_split": 2}),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def whole_x() -> Iterator[None]:
    """x as it is, not as bf16 halves: those turn a last bit next to a tie into a 17th, 5e-6 in the logits."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("schedule_ir.ops.activation", "amk.runtime.cpu.execute"):
            patch.setattr(f"{module}.split_bf16", lambda x: x)
        yield


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_one_piece(case: str) -> None:
    changes, sms, knobs = CASES[case]
    model, ids = random_model(**changes), tokens_of(20)
    assert parked(small_program(model, sms, **knobs)) > 0
    whole = logits_with(model, ids, sms, **knobs | {"down_pieces": 1})
    assert relative_error(logits_with(model, ids, sms, **knobs), whole) < NOISE


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    hidden=st.integers(8, 150).map(lambda n: 2 * n),
    intermediate=st.integers(24, 900),
    sms=st.integers(1, 12),
    pieces=st.integers(2, 8),
    split=st.integers(1, 3),
    warps=st.sampled_from([4, 6, 8]),
    bias=st.booleans(),
)
def test_logits_of_any_size(
    hidden: int, intermediate: int, sms: int, pieces: int, split: int, warps: int, bias: bool
) -> None:
    model = random_model(hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=1, mlp_bias=bias)
    knobs, ids = {"compute_warps": warps, "down_split": split}, tokens_of(4)
    whole = logits_with(model, ids, sms, down_pieces=1, **knobs)
    assert relative_error(logits_with(model, ids, sms, down_pieces=pieces, **knobs), whole) < NOISE


@pytest.mark.parametrize(("intermediate", "sms", "pieces"), [(4096, 132, 2), (2048, 80, 1), (3000, 132, 1)])
def test_pieces_by_themselves(intermediate: int, sms: int, pieces: int) -> None:
    """Pieces of 2,048 inputs from three rounds of gate/up units on: 512 units on 132 SMs, but not 375."""
    program = small_program(random_model(intermediate_size=intermediate), sms)
    matrices = [tiles for tiles in program.tiles if tiles.name.startswith("layers.0.down.")]
    assert len(matrices) == pieces
    assert program.config["accumulators"] == int(pieces > 1)


def test_pieces_are_one_matrix_with_a_factor_each() -> None:
    plan = make_plan(small_program(random_model(), down_pieces=3))
    factors = [[factor.atoms for factor in node.factors] for node in plan.nodes if isinstance(node, LinearNode)]
    assert factors == [[5], [4], [5], [5, 5, 3]] * 2 + [[5]]


# Broken chains


@pytest.fixture(scope="module")
def program() -> Program:
    """Two units of down on each SM, in three pieces."""
    return small_program(random_model(hidden_size=160, num_hidden_layers=1), 5, down_pieces=3)


def op_of(program: Program, task: Task) -> str:
    return program.variants[task.opcode].op


def parked(program: Program) -> int:
    return sum(op_of(program, task) == "gemv_park" for *_, task in program.tasks())


def opcode(program: Program, op: str, **constants: int) -> int:
    """The opcode of a variant with these constants."""
    return next(
        i for i, v in enumerate(program.variants) if v.op == op and constants.items() <= v.constants.items()
    )  # fmt: skip


def chain_tasks(program: Program) -> tuple[list[Task], list[int]]:
    """The compute lane of SM 2, and where its multiplications of down are: piece by piece, two units each."""
    tasks = list(program.lanes[2, Lane.COMPUTE, Section.BODY])
    places = [i for i, task in enumerate(tasks) if op_of(program, task) in ("gemv_park", "gemv_resume")]
    assert len(places) == 6
    return tasks, places


def refused(program: Program, tasks: list[Task], *words: str) -> None:
    with pytest.raises(RejectedProgramError) as caught:
        make_plan(edited(program, 2, Lane.COMPUTE, tasks))
    for word in words:
        assert word in str(caught.value)


def test_a_chain_without_a_beginning(program: Program) -> None:
    tasks, places = chain_tasks(program)
    start = tasks[places[0]]
    resumes = opcode(program, "gemv_park", resume=1)
    tasks[places[0]] = replace(start, opcode=resumes)
    where = f"SM 2, compute lane, body task {places[0]}: gemv_park("
    refused(program, tasks, where, "accumulator 0 is empty", "a gemv_park without resume has to come first")


def test_a_resume_of_an_accumulator_that_was_taken(program: Program) -> None:
    tasks, places = chain_tasks(program)
    tasks[places[5]] = replace(tasks[places[5]], args=(0,))
    refused(program, tasks, f"body task {places[5]}: gemv_resume(", "accumulator 0 is empty")


def test_a_start_over_an_open_chain(program: Program) -> None:
    tasks, places = chain_tasks(program)
    tasks[places[1]] = replace(tasks[places[1]], args=(0,))
    words = "accumulator 0 still holds the sums of", f"body task {places[0]}: gemv_park(", "take them with gemv_resume"
    refused(program, tasks, f"body task {places[1]}: gemv_park(", *words)


def test_a_chain_that_does_not_end(program: Program) -> None:
    """The last unit is multiplied in one go instead: the epilogue gets its sums, and the parked ones stay."""
    tasks, places = chain_tasks(program)
    last = program.variants[tasks[places[5]].opcode].constants
    variants = (*program.variants, replace(program.variants[opcode(program, "gemv")], constants=dict(last)))
    tasks[places[5]] = Task(len(program.variants), ())
    words = f"SM 2, compute lane, body task {places[3]}: gemv_park(", "accumulator 1 where the section ends"
    refused(replace(program, variants=variants), tasks, *words)


def test_a_chain_of_two_units(program: Program) -> None:
    tasks, places = chain_tasks(program)
    tasks[places[2]], tasks[places[3]] = tasks[places[3]], tasks[places[2]]
    words = "multiplies unit 4 of model.layers.0.mlp.down_proj.weight", "holds sums of unit 9 of"
    refused(program, tasks, f"body task {places[2]}: gemv_park(", *words)


@pytest.mark.parametrize("accumulator", [-1, 2])
def test_an_accumulator_that_there_is_not(program: Program, accumulator: int) -> None:
    tasks, places = chain_tasks(program)
    tasks[places[0]] = replace(tasks[places[0]], args=(accumulator,))
    refused(program, tasks, f"accumulator {accumulator} is not one of the 2")


def test_a_piece_of_another_size(program: Program) -> None:
    """The gather of the last piece is left out: x is that of the piece before."""
    tasks, places = chain_tasks(program)
    assert op_of(program, tasks.pop(places[4] - 1)) == "gather"
    refused(program, tasks, "gemv_resume(", "x has 5 k-steps in this SM")


def test_a_copy_that_is_not_the_pieces_size(program: Program) -> None:
    variants = tuple(
        replace(v, constants={**v.constants, "ksteps": 6}) if v.op == "gemv_resume" else v for v in program.variants
    )
    tasks, _ = chain_tasks(program)
    refused(replace(program, variants=variants), tasks, "gemv_resume(", "the ring holds what", "copy_tape(")
