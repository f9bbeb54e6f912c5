"""Walking the lanes: what is computed once, and which schedules are refused, by the task that cannot go on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from amk.errors import RejectedProgramError
from amk.model.source import open_model
from amk.runtime.cpu.nodes import AttentionNode, LinearNode
from amk.runtime.cpu.plan import make_plan
from schedule_ir import Program, Section, Task
from schedule_ir.op import Lane
from tests.runtime.models import edited, program_of, save_model

BODY, HEAD = Section.BODY, Section.HEAD


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("model")
    save_model(path)
    return program_of(open_model(path))


def op_of(program: Program, task: Task) -> str:
    return program.variants[task.opcode].op


def lane(program: Program, sm: int, which: Lane, section: Section = BODY) -> list[Task]:
    return list(program.lanes[sm, which, section])


def find(program: Program, tasks: list[Task], op: str, nth: int = 0) -> int:
    return [i for i, task in enumerate(tasks) if op_of(program, task) == op][nth]


def owner(program: Program, which: Lane, op: str) -> int:
    """The first SM that has such a task."""
    return next(sm for sm, at, _, _, task in program.tasks() if at is which and op_of(program, task) == op)


def with_argument(program: Program, task: Task, field: str, value: int) -> Task:
    index = program.variants[task.opcode].spec.fields.index(field)
    return replace(task, args=(*task.args[:index], value, *task.args[index + 1 :]))


def refused(program: Program, *words: str) -> None:
    with pytest.raises(RejectedProgramError) as caught:
        make_plan(program)
    for word in words:
        assert word in str(caught.value)


def test_what_every_sm_does_is_done_once(program: Program) -> None:
    plan = make_plan(program)
    kinds = Counter(type(node).__name__ for node in plan.nodes)
    # Two layers: a norm before each half and at the end; qkv, o, gate/up and down; the head.
    assert kinds == {
        "EmbedNode": 1, "NormNode": 5, "AddNode": 4, "GatherNode": 4, "LinearNode": 9, "AttentionNode": 2,
    }  # fmt: skip
    assert plan.logits == plan.body == len(plan.nodes) - 1


def test_members_lie_in_mailbox_order(program: Program) -> None:
    plan = make_plan(program)
    attention = [node for node in plan.nodes if isinstance(node, AttentionNode)]
    assert [node.kv_heads for node in attention] == [(0, 1), (2, 3)]
    qkv = plan.nodes.index(next(node for node in plan.nodes if isinstance(node, LinearNode)))
    assert (attention[0].q, attention[0].k, attention[0].v) == (((qkv, 0, 64),), ((qkv, 64, 96),), ((qkv, 96, 128),))


def test_a_copy_too_few(program: Program) -> None:
    tasks = lane(program, 3, Lane.STREAM)
    refused(edited(program, 3, Lane.STREAM, tasks[:-1]), "SM 3", "compute lane", "gets nothing", "ring")


def test_ring_contents_of_the_wrong_kind(program: Program) -> None:
    sm = owner(program, Lane.STREAM, "copy_kv")
    tasks = lane(program, sm, Lane.STREAM)
    tasks.append(tasks.pop(find(program, tasks, "copy_kv")))
    refused(edited(program, sm, Lane.STREAM, tasks), f"SM {sm}", "attend", "the ring holds what", "copy_tape")


def test_ring_contents_of_the_wrong_split(program: Program) -> None:
    sm = owner(program, Lane.STREAM, "copy_kv")
    tasks = lane(program, sm, Lane.STREAM)
    at = find(program, tasks, "copy_kv")
    tasks[at] = with_argument(program, tasks[at], "split", tasks[at].args[1] + 1)
    refused(edited(program, sm, Lane.STREAM, tasks), "attend", "the ring holds what")


def test_an_epilogue_task_too_few(program: Program) -> None:
    tasks = lane(program, 2, Lane.EPILOGUE)
    del tasks[find(program, tasks, "publish")]
    refused(edited(program, 2, Lane.EPILOGUE, tasks), "SM 2", "reduction queue", "is never taken")


def test_head_products_cannot_lean_on_body(program: Program) -> None:
    copies = lane(program, 1, Lane.STREAM, HEAD)
    moved = edited(program, 1, Lane.STREAM, lane(program, 1, Lane.STREAM) + copies[:1])
    refused(edited(moved, 1, Lane.STREAM, copies[1:], HEAD), "SM 1", "body")


def test_a_deadlock_names_a_waiting_task(program: Program) -> None:
    tasks = lane(program, 0, Lane.EPILOGUE)
    at = find(program, tasks, "publish")
    tasks[at] = with_argument(program, tasks[at], "phase", 77)
    refused(
        edited(program, 0, Lane.EPILOGUE, tasks), "compute lane, body task", "waits forever for packets", "packet 0"
    )


def test_a_cycle_of_waits_is_a_deadlock(program: Program) -> None:
    # The SM gathers the MLP activations before it multiplies the gate/up unit that they need.
    def gathers_mlp(task: Task) -> bool:
        variant = program.variants[task.opcode]
        first_layer = variant.op == "gather" and task.args[variant.spec.fields.index("phase")] == 0
        return first_layer and variant.constants["length"] == 200

    sm = next(sm for sm in range(program.sms) if any(map(gathers_mlp, lane(program, sm, Lane.COMPUTE))))
    tasks = lane(program, sm, Lane.COMPUTE)
    gather = next(i for i, task in enumerate(tasks) if gathers_mlp(task))
    tasks.insert(find(program, tasks, "add_norm") + 1, tasks.pop(gather))
    refused(edited(program, sm, Lane.COMPUTE, tasks), "waits forever", "of phase 0")


def test_a_packet_published_twice(program: Program) -> None:
    tasks = lane(program, 1, Lane.EPILOGUE)
    first = find(program, tasks, "publish")
    tasks[first] = with_argument(program, tasks[first], "dst", 0)
    refused(edited(program, 1, Lane.EPILOGUE, tasks), "published twice")


def test_a_packet_outside_the_mailboxes(program: Program) -> None:
    tasks = lane(program, 1, Lane.EPILOGUE)
    first = find(program, tasks, "publish")
    tasks[first] = with_argument(program, tasks[first], "dst", program.config["packets"])
    refused(edited(program, 1, Lane.EPILOGUE, tasks), "SM 1, epilogue lane", "are not among")


def test_a_release_too_few(program: Program) -> None:
    tasks = lane(program, 5, Lane.EPILOGUE)
    del tasks[find(program, tasks, "kv_release")]
    refused(edited(program, 5, Lane.EPILOGUE, tasks), "kv_acquire waits forever", "token before")


def test_an_attention_split_too_few(program: Program) -> None:
    sm = owner(program, Lane.COMPUTE, "attend")
    compute, stream = lane(program, sm, Lane.COMPUTE), lane(program, sm, Lane.STREAM)
    del compute[find(program, compute, "attend")]
    del stream[find(program, stream, "copy_kv")]
    refused(edited(edited(program, sm, Lane.COMPUTE, compute), sm, Lane.STREAM, stream), "waits forever")


def test_a_kv_row_that_nobody_appends(program: Program) -> None:
    sm = owner(program, Lane.COMPUTE, "append")
    tasks = lane(program, sm, Lane.COMPUTE)
    kv_head, split = tasks.pop(find(program, tasks, "append")).args
    words = f"K/V head {kv_head}: no task appends its new row", f"split {split} is the last"
    refused(edited(program, sm, Lane.COMPUTE, tasks), *words)


def test_a_kv_row_that_is_appended_twice(program: Program) -> None:
    sm = owner(program, Lane.COMPUTE, "append")
    tasks = lane(program, sm, Lane.COMPUTE)
    at = find(program, tasks, "append")
    tasks.insert(at, tasks[at])
    words = f"compute lane, body task {at + 1}: append(", "another task has appended"
    refused(edited(program, sm, Lane.COMPUTE, tasks), *words)
    head = [tasks[at], *lane(program, sm, Lane.COMPUTE, HEAD)]
    refused(edited(program, sm, Lane.COMPUTE, head, HEAD), "head task 0: append(", "another task has appended")


@pytest.mark.parametrize("field", ["kv_head", "split"])
def test_an_append_of_another_row(program: Program, field: str) -> None:
    sm = owner(program, Lane.COMPUTE, "append")
    tasks = lane(program, sm, Lane.COMPUTE)
    at = find(program, tasks, "append")
    value = tasks[at].args[program.variants[tasks[at].opcode].spec.fields.index(field)]
    tasks[at] = with_argument(program, tasks[at], field, value + 1)
    refused(edited(program, sm, Lane.COMPUTE, tasks), f"SM {sm}", "append(", "does not hold the new row", "put append")


def test_an_append_before_its_attend(program: Program) -> None:
    sm = owner(program, Lane.COMPUTE, "append")
    tasks = lane(program, sm, Lane.COMPUTE)
    tasks.insert(find(program, tasks, "attend"), tasks.pop(find(program, tasks, "append")))
    refused(edited(program, sm, Lane.COMPUTE, tasks), "append(", "does not hold the new row of K/V head")


def test_an_append_after_the_next_row_came(tmp_path: Path) -> None:
    """One SM with several K/V heads: the row of the first is overwritten by the second."""
    save_model(tmp_path, intermediate_size=24, num_attention_heads=8, num_key_value_heads=8, head_dim=8)
    program = program_of(open_model(tmp_path))
    sm = next(sm for sm in range(program.sms) if sum(
        op_of(program, task) == "attend" for task in lane(program, sm, Lane.COMPUTE)) > 2)  # fmt: skip
    tasks = lane(program, sm, Lane.COMPUTE)
    first = tasks.pop(find(program, tasks, "append"))
    tasks.insert(find(program, tasks, "append") + 1, first)
    make_plan(program)
    refused(edited(program, sm, Lane.COMPUTE, tasks), "append(", "does not hold the new row of K/V head")


def test_logits_that_nobody_makes(program: Program) -> None:
    edits = edited(program, 4, Lane.STREAM, lane(program, 4, Lane.STREAM, HEAD)[1:], HEAD)
    compute, epilogue = lane(program, 4, Lane.COMPUTE, HEAD), lane(program, 4, Lane.EPILOGUE, HEAD)
    edits = edited(edits, 4, Lane.COMPUTE, compute[1:], HEAD)
    refused(edited(edits, 4, Lane.EPILOGUE, epilogue[1:], HEAD), "1003 logits")


def test_norm_scale_of_a_gathered_vector(program: Program) -> None:
    variants = tuple(
        replace(v, constants={**v.constants, "scaled": 1}) if v.op == "publish" else v for v in program.variants
    )
    refused(replace(program, variants=variants), "publish", "was not normed")


def test_a_product_of_another_size(tmp_path: Path) -> None:
    save_model(tmp_path, hidden_size=48)
    program = program_of(open_model(tmp_path))
    variants = tuple(
        replace(v, constants={**v.constants, "ksteps": 5}) if v.op == "embed_norm" else v for v in program.variants
    )
    refused(replace(program, variants=variants), "gemv", "x has 5 k-steps")
