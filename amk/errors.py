"""The errors a user can cause. Each names the thing, its value and what to do, in one line."""

from __future__ import annotations


class AmkError(Exception):
    """Base of every error that amk reports without a traceback.

    `exit_code` is what the command line exits with.
    """

    exit_code = 1


class UsageError(AmkError):
    """The request itself is wrong: a bad option, an empty prompt, a token id out of range."""

    exit_code = 2


class UnsupportedModelError(AmkError):
    """The checkpoint is of a kind, or has a property, that amk does not implement, or is damaged."""

    exit_code = 3


class RejectedProgramError(AmkError):
    """The validator, or the lowering's own preconditions, refused the Program."""

    exit_code = 4


class DeviceError(AmkError):
    """The GPU is missing, does not fit the artifact, is too small, or the kernel failed on it."""

    exit_code = 5


class ArtifactError(AmkError):
    """The artifact folder, or the checkpoint it refers to, is missing, damaged or was changed."""

    exit_code = 6
