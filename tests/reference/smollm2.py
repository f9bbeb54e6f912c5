"""Comparing a session with the stored reference, step by step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.runtime.session import Session
from tests.reference.hf import over_cache
from tests.reference.rounding import rounding_error
from tests.reference.steps import StepError

FOLDER = Path(__file__).parent
MARGINS = {"fp16": 0.03, "fp32": 1e-3}
"""Top-2 margin of the reference above which a token must be the same, by K/V dtype."""

MAX_ERROR = {"fp16": 1e-3, "fp32": 2e-4}
"""Relative error (2-norm, over the stored logits of a prompt) that logits may have, by K/V dtype; with fp16 where
rounding the cache to fp16 leaves that much."""

ROUNDING_FACTOR = 1.5
"""With fp16 K/V: how much larger the error may be than that of transformers with its cache rounded to fp16."""

LONG = "2100-tokens"
QUICK = ("one-token", "c", "chat", "japanese")
"""The prompts of a plain test run; --full takes them all."""


@dataclass(frozen=True)
class Reference:
    """64 greedy tokens of transformers in fp32: the margins between its two best logits, and a part of the logits.

    `rounded_error` is the relative error of transformers itself with nothing but its K/V cache rounded to fp16.
    """

    name: str
    prompt: list[int]
    tokens: list[int]
    margins: list[float]
    rounded_error: float
    logits: npt.NDArray[np.float32]
    vocab_step: int


@cache
def stored() -> dict[str, Any]:
    """smollm2.json."""
    data: dict[str, Any] = json.loads((FOLDER / "smollm2.json").read_text(encoding="utf-8"))
    return data


@cache
def references() -> dict[str, Reference]:
    """The stored references by prompt name."""
    samples = np.load(FOLDER / "smollm2.npz")
    step = stored()["vocab_step"]
    return {name: Reference(name, **entry, logits=samples[name], vocab_step=step) for name, entry in _entries()}


def _entries() -> list[tuple[str, dict[str, Any]]]:
    return list(stored()["prompts"].items())


def names(full: bool) -> list[str]:
    """Prompts to test: all, or the quick ones."""
    return [name for name, _ in _entries()] if full else list(QUICK)


@dataclass(frozen=True)
class Comparison:
    """What differed: steps with another token, and below the margin, as (step, margin); relative logits errors."""

    name: str
    differing: list[tuple[int, float]]
    below_margin: list[tuple[int, float]]
    error: float
    worst_step_error: float

    def __str__(self) -> str:
        return (
            f"{self.name}: logits error {self.error:.1e} (worst step {self.worst_step_error:.1e}); steps below the "
            f"margin: {_steps(self.below_margin)}; differing: {_steps(self.differing)}"
        )


def _steps(steps: list[tuple[int, float]]) -> str:
    return ", ".join(f"{step} ({margin:.5f})" for step, margin in steps) or "none"


def compare_logits(reference: Reference, logits: npt.NDArray[np.float32], margin: float) -> Comparison:
    """Compare float32 [prompt + tokens - 1, vocab], the logits after every token fed, with the reference."""
    chosen = logits[len(reference.prompt) - 1 :]
    wrong = chosen[:, :: reference.vocab_step] - reference.logits
    sizes = np.linalg.norm(wrong, axis=1) / np.linalg.norm(reference.logits, axis=1)
    steps = list(enumerate(reference.margins))
    return Comparison(
        name=reference.name,
        differing=[(step, gap) for step, gap in steps if int(chosen[step].argmax()) != reference.tokens[step]],
        below_margin=[(step, gap) for step, gap in steps if gap <= margin],
        error=float(np.linalg.norm(wrong) / np.linalg.norm(reference.logits)),
        worst_step_error=float(sizes.max()),
    )


def check_logits(session: Session, reference: Reference, kv_dtype: str, hf: Any) -> Comparison:
    """Assert that logits along the reference's tokens are close, and choose its token wherever the margin is clear.

    With a rounded cache also that they are what transformers, `hf`, gets from that cache.
    """
    margin, ids = MARGINS[kv_dtype], [*reference.prompt, *reference.tokens[:-1]]
    logits = session.logits(ids)
    result = compare_logits(reference, logits, margin)
    print(result)
    if kv_dtype != "fp32":
        check_over_cache(session, ids, logits[len(reference.prompt) - 1 :], kv_dtype, hf)
    rounding = ROUNDING_FACTOR * reference.rounded_error if kv_dtype == "fp16" else 0.0
    assert result.error < max(MAX_ERROR[kv_dtype], rounding), result
    if kv_dtype == "fp16":
        assert result.error < rounding, (result, reference.rounded_error)
    assert all(gap <= margin for _, gap in result.differing), result
    return result


def check_over_cache(session: Session, ids: list[int], logits: npt.NDArray[np.float32], kv_dtype: str, hf: Any) -> None:
    """Assert that amk's cached rows are roundings of transformers', and its last logits what follows from them."""
    cached = session.machine.kv_rows(0, len(ids))
    expected, rows = over_cache(hf, ids, cached, len(logits))
    errors = np.linalg.norm(logits - expected, axis=1) / np.linalg.norm(expected, axis=1)
    worst = StepError(float(errors.max()), rounding_error(cached, rows, kv_dtype))
    print(f"over its own cache: {worst}")
    assert worst.close, worst


def check_tokens(reference: Reference, tokens: Sequence[int], kv_dtype: str) -> None:
    """Assert that greedy tokens are the reference's, up to the first that differs where its margin leaves it open."""
    assert len(tokens) == len(reference.tokens)
    pairs = zip(tokens, reference.tokens, reference.margins, strict=True)
    for step, (got, expected, gap) in enumerate(pairs):
        if got != expected:
            assert gap <= MARGINS[kv_dtype], (
                f"{reference.name}: step {step} is {got}, not {expected}, at a margin of {gap}"
            )
            return


def unstoppable(session: Session) -> Session:
    """A session on the same machine, and its K/V, that decodes past stop tokens, as the reference does."""
    endless = Session(session.machine, replace(session.graph, eos_token_ids=()))
    endless._decoder.history = session._decoder.history
    return endless
