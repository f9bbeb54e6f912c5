"""The machine code of emitted kernels has what the proofs assume of it. Compiles for three targets; needs no GPU."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from amk.emit import compile_cubin, emit_source
from amk.gpus import lookup
from amk.lower import lower
from schedule_ir import encode
from tests.validator import programs
from validator import validate

TARGETS = ("a100-80", "h200", "rtx5090")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_.]+)", re.MULTILINE)


def nvdisasm() -> Path:
    """The disassembler of the nvidia-cuda-nvdisasm package."""
    nvidia = pytest.importorskip("nvidia")
    found = [path for root in nvidia.__path__ for path in Path(root).rglob("nvdisasm")]
    if not found:
        pytest.skip("nvidia-cuda-nvdisasm is not installed")
    return found[0]


class Kernel:
    """A compiled schedule: its instructions in order."""

    def __init__(self, name: str) -> None:
        self.target = lookup(name).as_target()
        self.model = programs.graph(256, 512, 4, 8, 2, 64, 1000)
        self.program = lower(self.model, self.target, 256)
        self.compiled = compile_cubin(emit_source(self.program), self.target)

    def instructions(self, folder: Path) -> list[str]:
        """Opcodes with their modifiers."""
        file = folder / "kernel.cubin"
        file.write_bytes(self.compiled.cubin)
        done = subprocess.run([str(nvdisasm()), "-c", str(file)], capture_output=True, text=True, check=True)
        return INSTRUCTION.findall(done.stdout)


kernel = cache(Kernel)


@pytest.fixture(params=TARGETS)
def built(request: pytest.FixtureRequest) -> Kernel:
    return kernel(request.param)


def test_kernel_may_be_resident(built: Kernel) -> None:
    """Rule 11 with the compiler's numbers, and no local memory anywhere (so none in the multiply loop)."""
    resources = built.compiled.resources
    assert resources["spill_bytes"] == resources["stack_bytes"] == 0
    given = {"registers": resources["registers"], "shared_bytes": built.program.config["shared_bytes"]}
    report = validate(encode(built.program), built.model, built.target, kernel=given)
    assert report.ok, report.text()
    assert all(o.status == "proved" for o in report.obligations)


def test_machine_code(built: Kernel, tmp_path: Path) -> None:
    code = built.instructions(tmp_path)
    count = Counter(code)
    assert not [op for op in count if op.startswith(("LDL", "STL"))]
    strong = {op for op in count if op.startswith("STG") and "STRONG.GPU" in op}
    # A vector of two is two accesses of 64 bits (PTX ISA, Memory Consistency Model, Vector Data-types).
    pair = {"STG.E.128.STRONG.GPU"}
    assert strong - pair == {"STG.E.64.STRONG.GPU"}, "packets are stored by 64-bit accesses, alone or in pairs"
    assert count["LDG.E.64.STRONG.GPU"] + count["LDG.E.128.STRONG.GPU"] > 0
    assert count["HMMA.16816.F32.BF16"] > 0
    copies = "LDGSTS" if built.target.path == "sm80" else "UBLKCP"
    assert any(op.startswith(copies) for op in count), "weights come by bulk copies (cp.async on sm_80)"
    assert built.target.path == "sm80" or any(op.startswith("FENCE.VIEW.ASYNC") for op in count), "proxy fences"


def test_acquire_invalidates_l1(built: Kernel, tmp_path: Path) -> None:
    """fence.acq_rel.gpu of kv_acquire is a gpu-scope barrier and an invalidation of L1, in this order."""
    code = built.instructions(tmp_path)
    fences = [i for i, op in enumerate(code) if op.startswith("MEMBAR") and op.endswith(".GPU")]
    assert len(fences) >= 2, "one in kv_release, one in kv_acquire"
    assert any("CCTL.IVALL" in code[i : i + 12] for i in fences)
