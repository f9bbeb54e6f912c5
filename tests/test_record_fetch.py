"""A record is asked for a task ahead: no task waits for the record of the next one.

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
LOAD = re.compile(r"\bLDG\.E\.128\.CONSTANT R(\d+),")


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
    """Of every fetch (a load whose address is prefetched further on), what reads the record before the next branch."""
    fetches = []
    for i, line in enumerate(code):
        load = LOAD.search(line)
        if load and any("CCTL.E.PF1" in other for other in code[i + 1 : i + 8]):
            words = {f"R{int(load[1]) + word}" for word in range(4)}
            fetches.append((i, words))
    found = []
    for i, words in fetches:
        end = next((j for j in range(i + 1, len(code)) if re.search(r"\b(BRA|BRX|EXIT)\b", code[j])), len(code))
        found.append([line for line in code[i + 1 : end] if words & sources(line)])
    return found


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
    assert len(found) == 2 * LANES, "each lane fetches its first record, then one a task"
    assert found[1::2] == [[]] * LANES


def test_a_copy_behind_the_load_is_seen() -> None:
    code = [
        "LDG.E.128.CONSTANT R8, desc[UR8][R4.64]",
        "CCTL.E.PF1 [R4+0xc0]",
        "IMAD.MOV.U32 R98, RZ, RZ, R8",
        "@P0 BRA 0x5200",
    ]
    assert waits_for_the_next(code) == [[code[2]]]
    assert waits_for_the_next([*code[:2], "IMAD.MOV.U32 R20, RZ, RZ, R12", code[3], code[2]]) == [[]]
