"""All lanes of a GPU, executing a Program."""

from __future__ import annotations

from tests.validator.machine.activation import Activation
from tests.validator.machine.attention import Attention
from tests.validator.machine.epilogue import Epilogue


class Machine(Activation, Attention, Epilogue):
    """One run of a Program."""
