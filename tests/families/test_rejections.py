"""Schedules that compute another model than the graph, one feature at a time: each is rejected for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from amk.lower import lower
from amk.model.graph import Layer, ModelGraph
from amk.model.walker import walk
from schedule_ir import Program, encode
from tests.families.cases import CASES
from tests.families.models import transformers_config
from tests.runtime.models import H200, KNOBS
from validator import validate

MAX_SEQ = 128


def graph_of(case: str) -> ModelGraph:
    """The graph of a case's config."""
    config = transformers_config(CASES[case]).to_dict()
    return walk(config | {"architectures": [CASES[case].class_name]})


def schedule(graph: ModelGraph) -> Program:
    return lower(graph, H200, MAX_SEQ, "fp16", KNOBS)


def with_layer(graph: ModelGraph, number: int, **changes: Any) -> ModelGraph:
    """The graph with one layer changed."""
    layers: list[Layer] = list(graph.layers)
    layers[number] = replace(layers[number], **changes)
    return replace(graph, layers=tuple(layers))


MODELS: list[tuple[str, Callable[[ModelGraph], ModelGraph], str]] = [
    ("mistral", lambda g: with_layer(g, 1, window=0), "another window than its layer"),
    ("mistral", lambda g: with_layer(g, 2, window=25), "another window than its layer"),
    ("smollm3", lambda g: with_layer(g, 3, rope=0), "another rope than its layer"),
    ("gemma3", lambda g: with_layer(g, 0, rope=0), "another rope than its layer"),
    ("qwen3", lambda g: with_layer(g, 0, q_norm=None, k_norm=None), "norms q and k otherwise"),
    ("qwen3", lambda g: with_layer(g, 1, q_norm=g.layers[0].q_norm, k_norm=g.layers[0].k_norm), "with other weights"),
    ("qwen3", lambda g: with_layer(g, 1, q_norm=g.layers[1].k_norm, k_norm=g.layers[1].q_norm), "with other weights"),
    ("olmo2", lambda g: with_layer(g, 1, post_mlp_norm=None), "input comes from add_post_norm, not from add_norm"),
    ("olmo2", lambda g: with_layer(g, 1, post_attn_norm=g.layers[0].post_attn_norm), "post row"),
    ("olmo2", lambda g: with_layer(g, 0, attn_norm=g.final_norm), "scaled=False"),
    ("gemma2", lambda g: replace(g, score_cap=0.0), "scalar score_cap"),
    ("gemma2", lambda g: replace(g, logits_cap=31.0), "scalar logits_cap"),
    ("gemma2", lambda g: replace(g, embed_scale=1.0), "scalar embed_scale"),
    ("gemma2", lambda g: replace(g, activation="silu"), "activation"),
    ("granite", lambda g: replace(g, residual_multiplier=1.0), "scalar residual_multiplier"),
    ("granite", lambda g: replace(g, logits_divisor=1.0), "scalar logits_divisor"),
]


@pytest.mark.parametrize(("case", "change", "message"), MODELS, ids=lambda item: item if isinstance(item, str) else "")
def test_a_schedule_of_another_model_is_rejected(
    case: str, change: Callable[[ModelGraph], ModelGraph], message: str
) -> None:
    graph = graph_of(case)
    report = validate(encode(schedule(graph)), change(graph), H200)
    assert {violation.rule for violation in report.violations} == {12}, report.text()
    assert message in report.text()


def change_constant(program: Program, op: str, name: str, value: int) -> Program:
    """The program with a constant of every variant of an op changed."""
    variants = [
        replace(v, constants={**v.constants, name: value}) if v.op == op else v for v in program.variants
    ]  # fmt: skip
    return replace(program, variants=tuple(variants))


@pytest.mark.parametrize(
    ("op", "name", "value", "rule", "message"),
    [
        ("copy_kv", "window", 40, 6, "drained by a task that expects others"),
        ("attend", "window", 1, 8, "a window of 1 position"),
        ("attend", "rope", 2, 8, "rope table 2 is not one of the 1"),
        ("attend", "qk_norm", 3, 1, "qk_norm = 3 is not between 0 and 2"),
    ],
)
def test_a_constant_that_fits_nothing_is_rejected(op: str, name: str, value: int, rule: int, message: str) -> None:
    graph = graph_of("mistral")
    report = validate(encode(change_constant(schedule(graph), op, name, value)), graph, H200)
    assert rule in {violation.rule for violation in report.violations}
    assert message in report.text()


def test_a_window_as_long_as_the_sequence_is_none() -> None:
    graph = graph_of("mistral")
    wide = replace(graph, layers=tuple(replace(layer, window=MAX_SEQ) for layer in graph.layers))
    full = replace(graph, layers=tuple(replace(layer, window=0) for layer in graph.layers))
    assert schedule(wide) == schedule(full)
    assert validate(encode(schedule(full)), wide, H200).ok
