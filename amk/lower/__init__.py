"""Lowering: a model graph, a target and knobs become a schedule."""

from amk.lower.knobs import Knobs
from amk.lower.lower import lower

__all__ = ["Knobs", "lower"]
