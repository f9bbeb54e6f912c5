"""The generated dispatch: variants that share code, and tests of opcodes."""

from __future__ import annotations

import re
from dataclasses import replace

from amk.emit import emit_source
from amk.lower import lower
from schedule_ir import Program, Variant
from tests.runtime.models import H200, KNOBS, random_model, small_program

UNITS = ("gemv", "gemv_park", "gemv_resume")


def dispatch(program: Program) -> list[str]:
    return re.findall(r"^    if \((.*)\) \{ (?:return )?(\w+.*)::run\((.*)\);", emit_source(program), re.MULTILINE)


def test_variants_share_code() -> None:
    """One template for all lengths in whole chunks; what variants differ in are arguments."""
    model = random_model(hidden_size=128, intermediate_size=512)
    program = small_program(model, 4, compute_warps=4, chunk_ksteps=4, down_pieces=2)
    gemvs = [v for v in program.variants if v.op.startswith("gemv")]
    assert len({tuple(v.constants.items()) for v in gemvs}) > 3
    found = [(code, arguments) for _, code, arguments in dispatch(program) if code.startswith("Gemv")]
    assert [code for code, _ in found] == ["Gemv<4, 0>"] * len(gemvs)  # on sm_90: each with its own literals
    assert len({arguments for _, arguments in found}) == len(gemvs)
    assert not any("task.opcode()" in arguments for _, arguments in found)
    older = replace(program, target=replace(program.target, path="sm80"))
    (shared,) = [arguments for _, code, arguments in dispatch(older) if code.startswith("Gemv")]
    assert "task.opcode()" in shared


def test_an_opcode_is_never_shifted_by_more_than_a_word_has() -> None:
    program = small_program(random_model(), 4)
    assert all(">> task.opcode()" in test for test, _, _ in dispatch(program))
    unused = tuple(Variant("copy_tape", {"ksteps": 1 + i, "chunk_ksteps": 1}) for i in range(32))
    many = replace(program, variants=(*program.variants, *unused))
    assert not any(">>" in test for test, _, _ in dispatch(many))


FOLLOWER = re.compile(r"Fed<(\w+)<(\d+).*?, Follower<(\d+), (\d+), (\d+), (\d+), (\w+)ull, (\w+)ull, (\w+)ull>>")


def followers(program: Program) -> list[tuple[str, int, list[set[int]]]]:
    """(op's template, k-steps of its x, opcodes: units that it loads, those that resume sums, those that park them)."""
    found = FOLLOWER.findall(emit_source(program))
    return [
        (template, int(ksteps), [{bit for bit in range(64) if int(mask, 16) >> bit & 1} for mask in masks])
        for template, ksteps, _, _, _, _, *masks in found
    ]


def test_who_polls_loads_the_units_that_its_x_is_for() -> None:
    model = random_model(hidden_size=128, intermediate_size=512)
    program = small_program(model, 4, compute_warps=4, chunk_ksteps=4, down_pieces=2, loaded_tiles=4)
    found = followers(program)
    assert {(template, ksteps) for template, ksteps, _ in found} == {("AddNorm", 8), ("Gather", 4), ("Gather", 16)}
    for _, ksteps, (units, resumed, parked) in found:
        named = {name: {o for o in units if program.variants[o].op == name} for name in ("gemv_park", "gemv_resume")}
        assert units == {o for o, v in enumerate(program.variants) if v.op in UNITS and v.constants["ksteps"] == ksteps}
        assert parked == named["gemv_park"]
        assert resumed == named["gemv_resume"] | {o for o in parked if program.variants[o].constants["resume"]}
    assert any(parked and resumed for _, _, (_, resumed, parked) in found)


def test_where_nothing_is_loaded_early() -> None:
    model = random_model()
    assert followers(small_program(model, 4))
    assert not followers(small_program(model, 4, loaded_tiles=1))
    program = small_program(model, 4)
    unused = tuple(Variant("copy_tape", {"ksteps": 1 + i, "chunk_ksteps": 1}) for i in range(64))
    assert not followers(replace(program, variants=(*program.variants, *unused))), "no set of so many opcodes"
    older = lower(model.graph, replace(H200, path="sm80"), 100, "fp32", KNOBS)
    assert not older.config["loaded_tiles"], "measured on sm_90 alone"
