"""Looking into, and spoiling, the memory of a CUDA machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from amk.runtime.cuda import CudaMachine
from amk.runtime.cuda.driver import call, driver, to_host
from amk.runtime.cuda.weights import tape_begins
from amk.runtime.machine import Launch, LaunchResult
from amk.runtime.session import Session


def poison(machine: CudaMachine, kv: bool = True) -> None:
    """Fill everything that a launch is to write with 0xFF (NaN, or a tag that never comes): packets, K/V, logits.

    The K/V cache is empty afterwards, unless `kv` is false. Tokens are in pinned memory, which every launch fills with
    0xFF itself.
    """
    cache = machine.program.buffer("kv")
    regions = [(int(machine._params.packets), 8 * machine.program.config["packets"]), machine._logits]
    if kv:
        regions.append((machine.kv_address, cache.size * cache.element_bytes))
    call(driver().cuCtxSetCurrent, machine._context)
    for address, size in regions:
        if size:
            call(driver().cuMemsetD8, address, 0xFF, size)
    call(driver().cuCtxSynchronize)


def fresh(session: Session) -> Session:
    """The session with poisoned buffers and nothing to reuse."""
    assert isinstance(session.machine, CudaMachine)
    session._decoder.history.clear()
    poison(session.machine)
    return session


def tape(machine: CudaMachine, sm: int) -> npt.NDArray[np.uint8]:
    """The bytes of an SM's weight tape, as they lie on the GPU."""
    begin, end = (int(offset) for offset in tape_begins(machine.program)[sm : sm + 2])
    data = np.empty(end - begin, np.uint8)
    call(driver().cuCtxSetCurrent, machine._context)
    to_host(data, int(machine._params.tape) + begin)
    return data


def free_bytes() -> int:
    """Free memory of the GPU; needs a current context."""
    free, _ = call(driver().cuMemGetInfo)
    return int(free)


class Sliced:
    """A machine whose launches have another length."""

    def __init__(self, machine: CudaMachine, slice_steps: int) -> None:
        self.machine, self.slice_steps = machine, slice_steps
        self.max_seq, self.vocab = machine.max_seq, machine.vocab

    def reset(self, prompt_len: int) -> None:
        self.machine.reset(prompt_len)

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        return self.machine.run(launch, on_token)

    def kv_rows(self, begin: int, end: int) -> npt.NDArray[np.float32]:
        return self.machine.kv_rows(begin, end)

    def close(self) -> None:
        self.machine.close()
