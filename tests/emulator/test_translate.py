"""asm statements as C++ calls."""

from __future__ import annotations

import pytest

from tests.emulator.translate import UnknownPtxError, translate


def test_an_instruction_becomes_a_call() -> None:
    source = (
        'asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2+8];" : "=l"(a), "=l"(b) : "l"(f(x, y)) : "memory");'
    )
    call = "::emu::ptx::ld_relaxed_gpu_global_v2_b64((a), (b), ::emu::address((f(x, y))) + 8);"
    assert translate(source) == f"do {{ {call} }} while (0);"


def test_registers_sinks_and_predicates() -> None:
    source = r"""asm("{\n.reg .pred p;\nselp.u32 %0, 1, 0, p;\n@!p a::b.c _, %1;\n}" : "=r"(d) : "n"(T::k));"""
    code = "bool p; ::emu::ptx::selp_u32((d), 1, 0, p); if (!p) ::emu::ptx::a_b_c(::emu::Sink{}, (T::k));"
    assert translate(source) == f"do {{ {code} }} while (0);"


def test_lines_stay_where_they_are() -> None:
    source = 'a // asm("x")\nasm("x.y %0;"\n    : "=r"(b));\nc'
    assert translate(source).splitlines()[3] == "c"


def test_an_empty_statement_does_nothing() -> None:
    assert translate('asm volatile("" : "+r"(thread));') == "do {  } while (0);"


def test_labels_are_refused() -> None:
    with pytest.raises(UnknownPtxError, match="LOOP"):
        translate('asm("LOOP: bra LOOP;");')
