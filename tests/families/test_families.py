"""Every family against transformers in fp32: logits at every position of a prompt, and the tokens that follow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import validator
from amk.model.source import open_model
from amk.verify.oracle import Oracle
from schedule_ir import encode
from tests.families.cases import CASES
from tests.families.models import greedy, reference, save
from tests.runtime.models import H200, program_of, relative_error, session_of, tokens_of

PROMPT, NEW = 70, 48


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    """By case: (folder, transformers' model), as they are asked for."""
    return _Models(tmp_path_factory)


class _Models(dict[str, tuple[Path, Any]]):
    def __init__(self, factory: pytest.TempPathFactory) -> None:
        super().__init__()
        self._factory = factory

    def __missing__(self, case: str) -> tuple[Path, Any]:
        folder = self._factory.mktemp(case)
        self[case] = folder, save(CASES[case], folder)
        return self[case]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_transformers(models: dict[str, tuple[Path, Any]], case: str) -> None:
    folder, model = models[case]
    ids = tokens_of(PROMPT, 503)
    expected = reference(model, ids)
    for kv_dtype, tolerance in (("fp32", 1e-4), ("fp16", 2e-3)):
        with session_of(folder, kv_dtype, 128) as session:
            assert relative_error(session.logits(ids), expected) < tolerance, kv_dtype


@pytest.mark.parametrize("case", CASES)
def test_greedy_tokens_are_transformers(models: dict[str, tuple[Path, Any]], case: str) -> None:
    folder, model = models[case]
    ids = tokens_of(PROMPT - 14, 503)  # some families change their angles at position 64
    expected, rows = greedy(model, ids, NEW)
    top = np.sort(rows, -1)
    assert (top[:, -1] - top[:, -2]).min() > 1e-5, "a tie in the reference decides nothing"
    with session_of(folder, "fp32", 128) as session:
        assert session.generate(ids, NEW).token_ids == expected


@pytest.mark.parametrize("case", CASES)
def test_graph_names_every_tensor(models: dict[str, tuple[Path, Any]], case: str) -> None:
    folder, _ = models[case]
    opened = open_model(folder)
    assert opened.graph.architecture == CASES[case].class_name
    for ref in opened.graph.tensors():
        values = opened.checkpoint.bf16(ref.name)
        assert values.shape == ref.shape


@pytest.mark.parametrize("case", CASES)
def test_schedule_is_proved(models: dict[str, tuple[Path, Any]], case: str) -> None:
    opened = open_model(models[case][0])
    report = validator.validate(encode(program_of(opened, max_seq=128)), opened.graph, H200)
    assert report.ok, report.text()


@pytest.mark.parametrize("case", CASES)
def test_oracle_is_transformers(models: dict[str, tuple[Path, Any]], case: str) -> None:
    folder, model = models[case]
    opened = open_model(folder)
    ids = tokens_of(PROMPT, 503)
    logits = Oracle(opened.graph, opened.checkpoint, "fp32").logits(ids, range(PROMPT))
    assert relative_error(logits, reference(model, ids)) < 2e-5


@pytest.mark.parametrize("case", CASES)
def test_torch_reference_is_transformers(models: dict[str, tuple[Path, Any]], case: str) -> None:
    """The reference of the GPU tests, one step at a time."""
    import torch

    from amk.bench.reference import TorchReference

    folder, model = models[case]
    opened = open_model(folder)
    g, ids = opened.graph, tokens_of(40, 503)
    reference_step = TorchReference(opened, 64, device="cpu")
    keys, values = torch.zeros(2, len(g.layers), g.kv_heads, 64, g.head_dim)
    steps = [reference_step.step(token, pos, keys, values).numpy() for pos, token in enumerate(ids)]
    assert relative_error(np.stack(steps), reference(model, ids)) < 1e-4
