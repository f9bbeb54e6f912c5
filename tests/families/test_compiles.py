"""Real sizes of every family compile for every target, without spills, and are proved with what the kernel uses."""

from __future__ import annotations

import pytest

import validator
from amk.emit import compile_cubin, emit_source
from amk.gpus import resolve
from amk.lower import lower
from amk.model.walker import walk
from schedule_ir import encode
from tests.families.real_sizes import CONFIGS

GPUS = ("a100-80", "h200", "rtx5090")


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", CONFIGS)
def test_compiles_without_spills(model: str, gpu: str) -> None:
    graph, target = walk(CONFIGS[model]), resolve(gpu).as_target()
    program = lower(graph, target, 4096)
    kernel = compile_cubin(emit_source(program), target)
    assert (kernel.resources["spill_bytes"], kernel.resources["stack_bytes"]) == (0, 0)
    resources = {**kernel.resources, "shared_bytes": program.config["shared_bytes"]}
    report = validator.validate(encode(program), graph, target, kernel=resources)
    assert report.ok, report.text()
