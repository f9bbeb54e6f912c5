"""Greedy decoding on a machine, launch by launch, reusing the K/V of what was decoded before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from amk.model.graph import Rope
from amk.runtime.machine import Launch, LaunchResult, Machine, Stopped


class Decoder:
    """Decodes one sequence after another; `history` are the tokens whose K/V is in the machine's cache."""

    def __init__(self, machine: Machine, rope: Rope, stop_ids: tuple[int, ...]) -> None:
        self.history: list[int] = []
        self._machine, self._rope, self._stop_ids = machine, rope, stop_ids
        self._long = False

    def reusable(self, ids: Sequence[int]) -> int:
        """How many leading tokens of `ids` are in the cache; at least one is left to compute logits from."""
        longest = max(len(ids), len(self.history))
        if self._rope.kind == "dynamic" and longest > self._rope.original_max_position:
            return 0  # the angles of all rows depend on the prompt's length
        if self._long != self._is_long(len(ids)):
            return 0
        pairs = zip(ids, self.history, strict=False)
        common = next((i for i, (new, old) in enumerate(pairs) if new != old), min(len(ids), len(self.history)))
        return min(common, len(ids) - 1)

    def decode(
        self, ids: Sequence[int], limit: int, on_token: Callable[[int], None], should_stop: Callable[[], bool]
    ) -> Stopped:
        """Feed `ids`, then sample up to `limit` tokens. After a DeviceError `history` is still right."""
        pos, produced = self._begin(ids, self.reusable(ids)), 0
        given = list(ids[pos:])
        while produced < limit:
            if self._room(pos) == 0:
                given = [*self.history, *given]
                pos = self._begin(given, 0)
            size = min(self._slice(), self._room(pos))
            chunk, given = given[:size], given[size:]
            # The last given token is the first whose logits are needed; then as many steps as the slice has left.
            last = not given
            steps = min(size, len(chunk) - 1 + limit - produced) if last else len(chunk)
            head_from = len(chunk) - 1 if last else steps
            launch = Launch(pos, chunk, steps, head_from, self._stop_ids, should_stop=should_stop)
            result = self._launch(launch, on_token)
            if result.stopped != "length":
                return result.stopped
            pos, produced = pos + result.steps_done, produced + len(result.tokens)
            given = given or result.tokens[-1:]
        return "length"

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """float32 [len(ids), vocab]: the logits after every token of `ids`, which starts a new sequence."""
        self._begin(ids, 0)
        parts = []
        pos = 0
        while pos < len(ids):
            chunk = ids[pos : pos + self._slice()]  # a machine may change its slice after every launch
            result = self._launch(Launch(pos, chunk, len(chunk), 0, want_logits=True), lambda _: None)
            assert result.logits is not None
            parts.append(result.logits)
            pos += len(chunk)
        return np.concatenate(parts)

    def _slice(self) -> int:
        return max(1, self._machine.slice_steps)

    def _begin(self, ids: Sequence[int], reused: int) -> int:
        del self.history[reused:]
        if not reused:
            self._machine.reset(len(ids))
            self._long = self._is_long(len(ids))
        return reused

    def _is_long(self, length: int) -> bool:
        """Whether LongRoPE takes its long divisors: for all positions once the sequence outgrows the first training."""
        return self._rope.kind == "longrope" and length > self._rope.original_max_position

    def _room(self, pos: int) -> int:
        """Positions from `pos` on for which the angles hold; then the sequence is fed anew, as transformers does."""
        if self._rope.kind != "longrope" or self._long:
            return sys.maxsize
        return self._rope.original_max_position - pos

    def _launch(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        """Run a launch; until it returns, the cache counts as valid up to where it starts."""
        del self.history[launch.start_pos :]
        result = self._machine.run(launch, on_token)
        self.history += [*launch.given, *result.tokens][: result.steps_done]
        return result
