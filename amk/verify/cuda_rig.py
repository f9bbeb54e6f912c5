"""The GPU as a rig: allocations between guard zones, hashes of device memory, kernels with injected delays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from amk.emit import CompiledKernel, compile_cubin, emit_source
from amk.model.source import Model
from amk.progress import SILENT, Progress
from amk.runtime.cuda import CudaMachine
from amk.runtime.cuda.driver import Memory, call, driver, to_host
from amk.runtime.cuda.weights import tape_begins
from amk.runtime.machine import Launch, Machine
from schedule_ir import Tables, decode
from schedule_ir.program import Program
from schedule_ir.target import Target

GUARD_BYTES = 1 << 16
_CHUNK = 64 << 20
_HASHERS = 4
CompileSource = Callable[[str, Target], CompiledKernel]


class GuardedMemory(Memory):
    """Every device allocation lies between two guard zones, and starts as `byte` where no content is asked for."""

    def __init__(self, byte: int) -> None:
        super().__init__()
        self.byte = byte
        self.zones: list[tuple[int, int]] = []

    def allocate(self, size: int, fill: int | None = None) -> int:
        """Device memory of `size` bytes between guards; its address."""
        base = super().allocate(max(1, size) + 2 * GUARD_BYTES, self.byte)
        pointer = base + GUARD_BYTES
        if fill is not None:
            call(driver().cuMemsetD8, pointer, fill, max(1, size))
        self.zones.append((pointer, max(1, size)))
        return pointer

    def free(self, pointer: int) -> None:
        """Free one allocation early."""
        self.zones = [zone for zone in self.zones if zone[0] != pointer]
        super().free(pointer - GUARD_BYTES)

    def overwritten(self) -> list[str]:
        """The allocations next to which something was written."""
        found = []
        for pointer, size in self.zones:
            for where, begin in (("before", pointer - GUARD_BYTES), ("after", pointer + size)):
                zone = np.empty(GUARD_BYTES, np.uint8)
                to_host(zone, begin)
                if (zone != self.byte).any():
                    found.append(f"{(zone != self.byte).sum()} bytes {where} the buffer of {size} bytes")
        return found


class GuardedMachine(CudaMachine):
    """A CUDA machine in guarded memory."""

    def __init__(self, tables: Tables, cubin: bytes, model: Model, byte: int) -> None:
        self.guarded = GuardedMemory(byte)
        super().__init__(tables, cubin, model)

    def _open(self, device: int) -> None:
        self._memory = self.guarded
        super()._open(device)

    def constants(self) -> list[tuple[int, int]]:
        """(address, bytes) of everything that no launch may change."""
        params, program = self._params, self.program
        sizes = {
            params.tape: int(tape_begins(program)[-1]),
            params.norms: 4 * program.config["hidden_padded"] * len(program.norms),
            params.biases: 4 * program.buffer("biases").size,
            params.records: self._current.records.nbytes,
            params.ranges: self._current.ranges.nbytes,
        }
        return list(sizes.items())

    def poison_kv(self, byte: int) -> None:
        """Set every byte of the K/V cache."""
        call(driver().cuMemsetD8, self.kv_address, byte, self._kv_bytes())


def _parts(constants: Sequence[tuple[int, int]]) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of device buffers, in chunks."""
    for pointer, size in constants:
        for begin in range(0, size, _CHUNK):
            part = np.empty(min(_CHUNK, size - begin), np.uint8)
            to_host(part, pointer + begin)
            yield part


def _hash(part: npt.NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(part.data, digest_size=16).digest()


class CudaRig:
    """A Program, its cubin and its model on the first GPU."""

    kind = "cuda"

    def __init__(
        self, tables: Tables, cubin: bytes, model: Model, progress: Progress = SILENT,
        compile_source: CompileSource = compile_cubin,
    ) -> None:  # fmt: skip
        self.tables, self.cubin, self.model = tables, cubin, model
        self.program: Program = decode(tables)
        self._progress, self._compile = progress, compile_source

    def machine(self, model: Model | None = None, fill: int | None = None) -> Machine:
        """A CUDA machine, in guarded memory if `fill` is given."""
        if fill is None:
            return CudaMachine(self.tables, self.cubin, model or self.model, self._progress)
        return GuardedMachine(self.tables, self.cubin, model or self.model, fill)

    def overwritten(self, machine: Machine) -> list[str] | None:
        """Guards that were written to."""
        return machine.guarded.overwritten() if isinstance(machine, GuardedMachine) else None

    def constants_digest(self, machine: Machine) -> str | None:
        """Hash of weights, norms, biases and tables as they lie in device memory."""
        if not isinstance(machine, GuardedMachine):
            return None
        with ThreadPoolExecutor(_HASHERS) as pool:  # hashing gigabytes in one thread takes longer than copying them
            parts = [pool.submit(_hash, part) for part in _parts(machine.constants())]
            return hashlib.sha256(b"".join(part.result() for part in parts)).hexdigest()

    def poison_kv(self, machine: Machine, fill: int) -> bool:
        """Set every byte of the K/V cache of a guarded machine."""
        if isinstance(machine, GuardedMachine):
            machine.poison_kv(fill)
            return True
        return False

    def delayed(self) -> Machine | None:
        """The same schedule in a kernel with delays in every lane."""
        kernel = self._compile(emit_source(self.program, delays=True), self.program.target)
        return CudaMachine(self.tables, kernel.cubin, self.model, self._progress)

    def ms_per_token(self, machine: Machine, pos: int, steps: int) -> float | None:
        """Event time of one launch, per token."""
        assert isinstance(machine, CudaMachine)
        result = machine.run(Launch(pos, [17 % machine.vocab], steps, 0), lambda _: None)
        return machine.last_launch_ms / result.steps_done
