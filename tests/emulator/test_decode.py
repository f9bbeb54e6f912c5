"""The kernel's own source, executed on the CPU, gives what the CPU runtime gives, whatever the interleaving."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from amk.emit.source import TRACE_EVENTS
from amk.errors import DeviceError
from amk.runtime.cuda.driver import to_host
from schedule_ir import Program, encode
from schedule_ir.codec import LANES
from schedule_ir.registry import REGISTRY
from tests.emulator.cases import CASES, MAX_SEQ
from tests.emulator.compare import BOUNDS, STEPS, Decoded, decode, error, expected
from tests.emulator.machine import emulated, library_of
from tests.runtime.models import relative_error
from tests.stops import check_stops

SEEDS = 2


@cache
def decoded(name: str, folder: Path, seed: int, sizes: tuple[int, ...] = ()) -> Decoded:
    model = CASES[name].model()
    program = CASES[name].program(model)
    with emulated(program, model, library_of(program, folder), seed) as machine:
        return decode(machine, sizes=sizes)


@pytest.mark.parametrize("name", CASES)
def test_tokens_logits_and_rows(name: str, folder: Path) -> None:
    case, model = CASES[name], CASES[name].model()
    wanted = expected(case.program(model), model)
    results = [decoded(name, folder, seed) for seed in range(SEEDS)]
    assert results[0].tokens == wanted.tokens
    assert error(results[0], wanted) < BOUNDS[case.kv_dtype]
    rows, wanted_rows = (x.rows.reshape(-1, x.rows.shape[-1]) for x in (results[0], wanted))
    assert relative_error(rows, wanted_rows) < BOUNDS[case.kv_dtype]
    assert all(result.same_bits(results[0]) for result in results[1:])


def test_more_splits_than_a_warp_polls_at_once(folder: Path) -> None:
    model = CASES["merges"].model()
    program = CASES["merges"].program(model)
    assert program.config["max_splits"] == 3 * program.config["compute_warps"]
    few = library_of(program, folder, lambda _, text: text.replace("kMost = kPairs == 1 ? 8 : 4", "kMost = 1"))
    results = []
    for library in (library_of(program, folder), few):
        with emulated(program, model, library, 0) as machine:
            results.append(decode(machine, MAX_SEQ))
    assert results[1].same_bits(results[0]), "of two splits the larger weighs 1, whichever is merged first"
    assert error(results[0], expected(program, model, MAX_SEQ)) < BOUNDS["fp32"]


def test_another_kernel_over_the_same_weights_changes_no_bit(folder: Path) -> None:
    model = CASES["llama"].model()
    program = CASES["llama"].program(model)
    other = replace(program, config={**program.config, "in_flight": 1, "in_flight_low": 1, "stocked": 0})
    with emulated(program, model, library_of(program, folder), 0) as machine:
        machine.use_kernel(encode(other), str(library_of(other, folder)).encode())
        assert decode(machine).same_bits(decoded("llama", folder, 0))
        machine.use_kernel(encode(program), str(library_of(program, folder)).encode())
        assert decode(machine).same_bits(decoded("llama", folder, 0))
        more = replace(program, config={**program.config, "compute_warps": 2 * program.config["compute_warps"]})
        tight = replace(CASES["llama"], knobs={"bulk_in_flight": 1, "bulk_stocked": 2}).program(model)
        assert encode(tight).records.tobytes() != encode(program).records.tobytes()
        machine.use_kernel(encode(tight), str(library_of(program, folder)).encode())
        assert decode(machine).same_bits(decoded("llama", folder, 0))
        for changed, what in ((more, "config compute_warps"), (replace(program, kv_dtype="bf16"), "kv_dtype")):
            with pytest.raises(DeviceError, match=f"another schedule .{what}."):
                machine.use_kernel(encode(changed), b"")


def test_injected_delays_and_a_timeline_change_no_bit(folder: Path) -> None:
    model = CASES["llama"].model()
    program = CASES["llama"].program(model)
    library = library_of(program, folder, delays=True, trace=True)
    with emulated(program, model, library, 2) as machine:
        address = machine.set_trace(TRACE_EVENTS)
        assert decode(machine).same_bits(decoded("llama", folder, 0))
        raw = np.zeros((program.sms, len(LANES), TRACE_EVENTS + 1, 4), np.int64)
        to_host(raw, address)
    for (sm, lane), tasks in tasks_of(program).items():
        events = raw[sm, LANES.index(lane)]
        assert events[0, 2] == tasks * STEPS, "the timeline has every task of every step"
        begin, waited, end = events[1 : 1 + tasks * STEPS, 1:].T
        assert (begin <= waited).all()
        assert (waited <= end).all()
        assert (end[:-1] <= begin[1:]).all()


def tasks_of(program: Program) -> dict[tuple[int, str], int]:
    """How many tasks a lane of an SM has, body and head."""
    counts: dict[tuple[int, str], int] = {}
    for (sm, lane, _), tasks in program.lanes.items():
        counts[sm, lane.value] = counts.get((sm, lane.value), 0) + len(tasks)
    return counts


def test_launch_slices_change_no_bit(folder: Path) -> None:
    assert decoded("llama", folder, 3, (5, 12, STEPS - 18, 1)).same_bits(decoded("llama", folder, 0))


def test_stop_ids_and_cancelling_end_a_launch(folder: Path) -> None:
    model = CASES["llama"].model()
    program = CASES["llama"].program(model)
    with emulated(program, model, library_of(program, folder)) as machine:
        check_stops(machine)


def executed(program: Program) -> set[str]:
    return {program.variants[task.opcode].op for tasks in program.lanes.values() for task in tasks}


def test_every_op_is_executed() -> None:
    ops: set[str] = set()
    for case in CASES.values():
        ops |= executed(case.program(case.model()))
    assert ops == set(REGISTRY)
    assert {case.path for case in CASES.values()} == {"sm80", "sm90", "sm120"}
    assert {case.kv_dtype for case in CASES.values()} == {"fp16", "bf16", "fp32"}


def test_logits_are_far_from_equal() -> None:
    """Else a wrong kernel would not be seen: logits depend on the token, and on those before it."""
    model = CASES["llama"].model()
    logits = expected(CASES["llama"].program(model), model).logits
    assert np.corrcoef(logits).max(initial=0, where=~np.eye(len(logits), dtype=bool)) < 0.999
