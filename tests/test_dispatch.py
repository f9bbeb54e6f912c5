"""The generated dispatch: variants that share code, and tests of opcodes."""

from __future__ import annotations

import re
from dataclasses import replace

from amk.emit import emit_source
from schedule_ir import Program, Variant
from tests.runtime.models import random_model, small_program


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
