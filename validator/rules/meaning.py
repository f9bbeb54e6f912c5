"""Rule 12: the Program computes the model."""

from __future__ import annotations

from validator.columns import Columns
from validator.matching import Matching
from validator.model import ModelLike
from validator.report import Violation
from validator.rules import meaning_attention
from validator.rules.meaning_layers import Flow
from validator.rules.meaning_model import bias_overlaps, sizes
from validator.rules.meaning_uses import uses


def check(columns: Columns, matching: Matching, model: ModelLike | None) -> list[Violation]:
    """Theorem: by induction over the layers, every activation that the schedule makes is the model's: sizes agree,
    each matrix is used once on the right input with the right scale, gate and bias, and attention is complete.
    """
    if model is None:
        return [Violation(12, "no model graph was given, so what the Program computes was not checked")]
    problems = [Violation(12, message) for message in (*sizes(columns, model), *bias_overlaps(columns))]
    if problems:
        return problems
    found, problems = uses(columns, matching)
    if problems:
        return problems
    flow = Flow(columns, model, found)
    return flow.run() or meaning_attention.check(flow)
