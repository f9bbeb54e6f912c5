"""An opcode, or a record, is asked for a task ahead: no task waits for that of the next one.

It did when the compiler copied a register of the record right behind its load: 15 to 20 us a token (docs/design.md).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from amk.emit import compile_cubin, emit_source
from amk.gpus import lookup
from amk.lower import lower
from amk.model.walker import walk
from tests.gpu.shapes import CONFIGS
from tests.validator.test_sass import nvdisasm

LANES = 3
PREFETCH = re.compile(r"CCTL\.E\.PF1 \[(R\d+)\+0x([0-9a-f]+)\]")
LOAD = re.compile(r"\bLDG\.E(\.128)?\.CONSTANT R(\d+), (?:desc\[\w+\])?\[(R\d+)\.64(?:\+0x([0-9a-f]+))?\]")
AHEAD = 4 * 48
"""Bytes from a record to the one that is prefetched when it is fetched."""

NEAR = 40


def code_of(shape: str, gpu: str, folder: Path) -> list[str]:
    """The kernel's instructions. It does not depend on how many layers there are."""
    target = lookup(gpu).as_target()
    program = lower(walk({**CONFIGS[shape], "num_hidden_layers": 2}), target, 4096)
    file = folder / "kernel.cubin"
    file.write_bytes(compile_cubin(emit_source(program), target).cubin)
    done = subprocess.run([str(nvdisasm()), "-c", str(file)], capture_output=True, text=True, check=True)
    kernel = done.stdout.split(".section\t.text.amk_decode")[-1].split(".section\t.text.")[0]
    return re.findall(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(.*?) *;", kernel, re.MULTILINE)


def waits_for_the_next(code: list[str]) -> list[list[str]]:
    """Of every fetch of an opcode or a record, what reads it before the next branch."""
    found = []
    for i, line in enumerate(code):
        if prefetch := PREFETCH.search(line):
            load, registers = record_load(code, i, prefetch[1], int(prefetch[2], 16) - AHEAD)
            end = next((j for j in range(load + 1, len(code)) if re.search(r"\b(BRA|BRX|EXIT)\b", code[j])), len(code))
            found.append([line for line in code[load + 1 : end] if registers & sources(line)])
    return found


def record_load(code: list[str], prefetch: int, base: str, offset: int) -> tuple[int, set[str]]:
    """Where, and into which registers, it is loaded from `offset` bytes behind `base` on."""
    for i in sorted(range(max(0, prefetch - NEAR), min(len(code), prefetch + NEAR)), key=lambda i: abs(i - prefetch)):
        load = LOAD.search(code[i])
        if load and load[3] == base and int(load[4] or "0", 16) == offset:
            first = int(load[2])
            return i, {f"R{register}" for register in range(first, first + (4 if load[1] else 1))}
    raise AssertionError(f"no load of the record near: {code[prefetch]}")


def sources(line: str) -> set[str]:
    """Registers that an instruction reads; of those that write one, without the first."""
    operands = re.findall(r"\bR\d+\b", line)
    writes = not re.match(r"(@!?U?P\w+ )?(ST|CCTL|ISETP|FSETP|BRA|SYNCS|BAR)", line)
    return set(operands[1:] if writes else operands)


@pytest.mark.parametrize(
    ("shape", "gpu"),
    [
        ("llama-1b", "h200"),
        ("llama-8b", "h200"),
        ("smollm2-135m", "h200"),
        ("llama-1b", "a100-80"),
        ("llama-1b", "rtx5090"),
    ],
)
def test_no_task_reads_the_record_of_the_next(shape: str, gpu: str, tmp_path: Path) -> None:
    found = waits_for_the_next(code_of(shape, gpu, tmp_path))
    assert len(found) >= 2 * LANES, "each lane fetches its first opcode, then one a task; more where a task takes two"
    assert not any(found)


def test_a_copy_behind_the_load_is_seen() -> None:
    code = [
        "@!P0 LDG.E.CONSTANT R8, desc[UR8][R4.64+0x30]",
        "CCTL.E.PF1 [R4+0xf0]",
        "IMAD.MOV.U32 R98, RZ, RZ, R8",
        "@P0 BRA 0x5200",
    ]
    assert waits_for_the_next(code) == [[code[2]]]
    assert waits_for_the_next([*code[:2], "IMAD.MOV.U32 R20, RZ, RZ, R12", code[3], code[2]]) == [[]]
    whole = ["@!P1 LDG.E.128.CONSTANT R8, desc[UR8][R4.64+0x30]", code[1], "IMAD.MOV.U32 R98, RZ, RZ, R11", code[3]]
    assert waits_for_the_next(whole) == [[whole[2]]]
    with pytest.raises(AssertionError, match="no load of the record"):
        waits_for_the_next(code[1:])
