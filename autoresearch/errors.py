"""What can go wrong in a search, and what a command exits with."""

from __future__ import annotations

from amk.errors import AmkError

IMPROVED = 0
NOTHING_BETTER = 10
INFRASTRUCTURE = 20


class InfrastructureError(AmkError):
    """The search cannot go on: the GPU, the disk, the journal or the default schedule failed. Says what to mend."""

    exit_code = INFRASTRUCTURE


class JournalError(InfrastructureError):
    """The journal cannot be opened or written."""


class ProposalError(ValueError):
    """A proposal that is not one: the message names the knob or field, its value and what is allowed."""
