"""What executes a Program's device tables, launch by launch: the contract of the CUDA and the CPU machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from amk.errors import UsageError

Stopped = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True)
class Launch:
    """Up to `steps` token steps from position `start_pos`.

    Step s is at position start_pos + s and takes token given[s], or the last sampled one once those are used up.
    Logits are computed, and a token sampled, in steps s >= `head_from`; a sampled token is emitted unless the next one
    is given (s + 1 < len(given)). The launch ends early after emitting one of `stop_ids`, and soon after
    `should_stop()` becomes true. `want_logits` keeps the logits of every step that computes them.
    """

    start_pos: int
    given: Sequence[int]
    steps: int
    head_from: int
    stop_ids: tuple[int, ...] = ()
    want_logits: bool = False
    should_stop: Callable[[], bool] | None = None


@dataclass(frozen=True)
class LaunchResult:
    """What a launch did: the emitted tokens, logits float32 [steps with logits, vocab] if wanted, why it ended.

    K/V of the positions start_pos .. start_pos + steps_done - 1 is in the cache.
    """

    tokens: list[int]
    logits: npt.NDArray[np.float32] | None
    steps_done: int
    stopped: Stopped


def check_launch(launch: Launch, max_seq: int, vocab: int) -> None:
    """Raise UsageError for a launch that no machine can execute."""
    end = launch.start_pos + launch.steps
    if launch.start_pos < 0 or launch.steps < 1 or end > max_seq:
        raise UsageError(f"launch of positions {launch.start_pos}..{end - 1}: there are {max_seq}")
    if not launch.given or (launch.steps > len(launch.given) and launch.head_from >= len(launch.given)):
        raise UsageError(f"launch of {launch.steps} steps: no token for step {len(launch.given)} is given or sampled")
    for token in launch.given:
        if not 0 <= token < vocab:
            raise UsageError(f"token id {token} is not one of the {vocab} of this model")


class Machine(Protocol):
    """A loaded model with its K/V cache.

    `max_seq` positions and `vocab` tokens are what it is built for; `slice_steps` is the most steps a launch should
    have for the machine to stay responsive.
    """

    @property
    def max_seq(self) -> int:
        """Positions that fit the K/V cache."""

    @property
    def vocab(self) -> int:
        """Token ids are 0 .. vocab - 1."""

    @property
    def slice_steps(self) -> int:
        """The most steps one launch should have."""

    def reset(self, prompt_len: int) -> None:
        """Begin a new sequence whose prompt has `prompt_len` tokens (dynamic RoPE depends on it)."""

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        """Execute a launch; `on_token` gets every emitted token as it appears.

        Needs given tokens below `vocab`, at least one, and start_pos + steps <= max_seq. Raises DeviceError if the
        machine fails; the K/V of positions from start_pos on is then undefined.
        """

    def kv_rows(self, begin: int, end: int) -> npt.NDArray[np.float32]:
        """float32 [2, layers, kv_heads, end - begin, head_dim]: K (rotated) and V of positions, as they are cached.

        Of any position below `max_seq`; those that no launch wrote since the reset hold something older.
        """

    def close(self) -> None:
        """Free the memory; the machine cannot be used afterwards. Again: nothing."""
