"""Real sizes of every family compile for every target, without spills, and are proved with what the kernel uses."""

from __future__ import annotations

import pytest

import validator
from amk.emit import compile_cubin, emit_source
from amk.gpus import resolve
from amk.lower import lower
from amk.model.walker import walk
from schedule_ir import encode
from tests.families.real_sizes import CONFIGS, with_layers

GPUS = ("a100-80", "h200", "rtx5090")
FIRST_LAYERS = 6
"""Enough for every kind of layer that a family has; the kernel does not depend on how many there are."""

WIDE_LAYERS = 16
"""Of models that a 5090 cannot hold whole."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every model, whole, for the GPU with the least shared memory, and its first layers for one of the others in turn;
    --full: whole for each.
    """
    full = bool(metafunc.config.getoption("--full"))
    pairs = [
        (model, gpu, full or gpu == GPUS[-1])
        for number, model in enumerate(CONFIGS)
        for index, gpu in enumerate(GPUS)
        if full or index in (number % 2, 2)
    ]
    metafunc.parametrize(("model", "gpu", "whole"), pairs)


def test_compiles_without_spills(model: str, gpu: str, whole: bool) -> None:
    layers = CONFIGS[model]["num_hidden_layers"] if whole else FIRST_LAYERS
    graph = walk(with_layers(CONFIGS[model], layers, min(layers, WIDE_LAYERS)))
    target = resolve(gpu).as_target()
    program = lower(graph, target, 4096)
    kernel = compile_cubin(emit_source(program), target)
    assert (kernel.resources["spill_bytes"], kernel.resources["stack_bytes"]) == (0, 0)
    resources = {**kernel.resources, "shared_bytes": program.config["shared_bytes"]}
    report = validator.validate(encode(program), graph, target, kernel=resources)
    assert report.ok, report.text()
