"""One loaded model on one GPU: a cooperative launch decodes many tokens."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.emit.source import FEEDING, KERNEL_NAME, UNITS
from amk.errors import DeviceError
from amk.model.rope import PromptTables
from amk.model.source import Model
from amk.progress import SILENT, Progress
from amk.runtime.cuda.driver import Memory, call, driver, to_device, to_host
from amk.runtime.cuda.exchange import difference
from amk.runtime.cuda.kv import read_kv
from amk.runtime.cuda.params import HANG, NOT_FINITE, OVERFLOW, REPORT, Params
from amk.runtime.cuda.weights import WeightLoader, weight_bytes
from amk.runtime.machine import Launch, LaunchResult, Stopped, check_launch
from amk.tape import bias_array, norm_array
from schedule_ir.codec import LANES, Tables, decode
from schedule_ir.program import Program

WAIT_LIMIT = 5_000_000
"""Units of 1024 SM clocks before a wait counts as hung: about three seconds, where a token takes milliseconds."""

SLICE_SECONDS = 0.2
"""Length of a launch, at most: cards that drive a display are reset if a kernel runs for seconds."""

_NO_TOKEN = -1
_POLL_SECONDS = 50e-6


class CudaMachine:
    """Executes launches of one program on one GPU. Not thread-safe; `close` frees the memory.

    Raises DeviceError if the GPU does not fit the program or is too small (before anything is allocated).
    """

    def __init__(
        self, tables: Tables, cubin: bytes, model: Model, progress: Progress = SILENT, device: int = 0
    ) -> None:
        self.program: Program = decode(tables)
        self._tables = self._current = tables
        self._kernels: dict[bytes, tuple[Any, int]] = {}
        self.model = model
        self.last_launch_ms = 0.0
        self._step_seconds = SLICE_SECONDS / 8
        self._epoch = 1
        self._memory = Memory()
        self._owned: list[tuple[Any, Any]] = []
        self._logits = (0, 0)
        self._ropes = PromptTables(model.graph.ropes, self.max_seq)
        self._context: Any = None
        self._device: Any = None
        self._open(device)
        try:
            self._prepare(tables, cubin, progress)
        except BaseException:
            self.close()
            raise

    # Machine

    @property
    def max_seq(self) -> int:
        """Positions that fit the K/V cache."""
        return self.program.config["max_seq"]

    @property
    def vocab(self) -> int:
        """Token ids are 0 .. vocab - 1."""
        return self.program.config["vocab"]

    @property
    def slice_steps(self) -> int:
        """Steps that take about SLICE_SECONDS, from the launch before."""
        return max(1, int(SLICE_SECONDS / self._step_seconds))

    @property
    def kv_address(self) -> int:
        """Device address of the K/V cache, in the layout of kernels/kv_types.cuh."""
        return int(self._params.kv)

    def set_trace(self, events: int) -> int:
        """Room for a timeline of `events` tasks a lane (the kernel must be emitted with trace); its device address."""
        self._use()
        size = self.program.sms * len(LANES) * (events + 1) * 4 * 8
        self._params.trace = self._memory.allocate(size, fill=0)
        return int(self._params.trace)

    def reset(self, prompt_len: int) -> None:
        """Begin a new sequence: with dynamic RoPE the angles depend on the prompt's length."""
        self._use()
        tables = self._ropes.for_prompt(prompt_len)
        if tables is not None:
            to_device(self._params.rope, np.ascontiguousarray(tables, np.float32))

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        """Execute a launch. Raises DeviceError for a hang (named), overflow of K/V, logits that are not finite."""
        check_launch(launch, self.max_seq, self.vocab)
        self._use()
        self._restart_epochs(launch.steps)
        self._set(launch)
        tokens = self._launch(launch, on_token)
        self._raise_failure()
        steps = int(self._report["steps_done"][0])
        self._epoch += launch.steps
        self._step_seconds = max(1e-5, self.last_launch_ms / 1e3 / max(1, steps))
        return LaunchResult(tokens, self._read_logits(launch, steps), steps, self._stopped())

    def kv_rows(self, begin: int, end: int) -> npt.NDArray[np.float32]:
        """Cached rows: see `Machine.kv_rows`."""
        self._use()
        return read_kv(self.program, self.kv_address, begin, end)

    def use_kernel(self, tables: Tables, cubin: bytes) -> None:
        """Launch another kernel from now on, with its own tables, over the weights that are loaded; one that was used
        before at no cost.

        Raises DeviceError if `tables` need other weights or memory than was loaded, or if it does not fit an SM.
        """
        self._use()
        if (changed := difference(self._tables, tables)) is not None:
            raise DeviceError(f"the kernel is of another schedule ({changed}); load it as a machine of its own")
        if cubin not in self._kernels:
            module = self._own(driver().cuModuleUnload, call(driver().cuModuleLoadData, cubin))
            self._kernels[cubin] = self._open_kernel(module, tables.header["config"]["shared_bytes"])
        self._kernel, self._shared_bytes = self._kernels[cubin]
        self._use_tables(tables)

    def _use_tables(self, tables: Tables) -> None:
        if tables is self._current:
            return
        for name, values in (("records", tables.records), ("ranges", tables.ranges)):
            before = getattr(self._current, name)
            if values.tobytes() == before.tobytes():
                continue
            if values.nbytes != before.nbytes:
                self._memory.free(getattr(self._params, name))
                setattr(self._params, name, self._memory.allocate(values.nbytes))
            to_device(getattr(self._params, name), values)
        self._current = tables

    def close(self) -> None:
        """Free the GPU memory."""
        if self._context is None:
            return
        cuda = driver()
        cuda.cuCtxSetCurrent(self._context)
        self._memory.close()
        for destroy, handle in reversed(self._owned):
            destroy(handle)
        self._owned.clear()
        cuda.cuDevicePrimaryCtxRelease(self._device)
        self._context = None

    def _restart_epochs(self, steps: int) -> None:
        """Clear the mailboxes before tags would wrap: a stale packet must never carry the tag that a reader awaits."""
        if (self._epoch + steps + 1) * self.program.config["phases"] < 1 << 32:
            return
        call(driver().cuMemsetD8, self._params.packets, 0, 8 * self.program.config["packets"])
        self._epoch = 1

    # Opening

    def _open(self, device: int) -> None:
        cuda = driver()
        call(cuda.cuInit, 0)
        self._device = call(cuda.cuDeviceGet, device)
        check_device(self.program, self._device)
        self._context = call(cuda.cuDevicePrimaryCtxRetain, self._device)
        self._use()

    def _use(self) -> None:
        if self._context is None:
            raise DeviceError("this session is closed; load the artifact again")
        call(driver().cuCtxSetCurrent, self._context)

    def _prepare(self, tables: Tables, cubin: bytes, progress: Progress) -> None:
        cuda = driver()
        self._check_memory()
        module = self._own(cuda.cuModuleUnload, call(cuda.cuModuleLoadData, cubin))
        self._kernels[cubin] = self._open_kernel(module, self.program.config["shared_bytes"])
        self._kernel, self._shared_bytes = self._kernels[cubin]
        self._stream = self._own(cuda.cuStreamDestroy, call(cuda.cuStreamCreate, 0))
        self._events = [self._own(cuda.cuEventDestroy, call(cuda.cuEventCreate, 0)) for _ in range(2)]
        weights = WeightLoader(self.program, self.model, module, self._memory)
        weights.load(progress)
        self._params = self._make_params(tables, weights)
        self.reset(0)

    def _open_kernel(self, module: Any, shared_bytes: int) -> tuple[Any, int]:
        """(the module's kernel, the shared memory that it takes)."""
        cuda = driver()
        kernel = call(cuda.cuModuleGetFunction, module, KERNEL_NAME.encode())
        attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call(cuda.cuFuncSetAttribute, kernel, attribute, shared_bytes)
        self._check_resident(kernel, shared_bytes)
        return kernel, shared_bytes

    def _own(self, destroy: Any, handle: Any) -> Any:
        """A handle that `close` destroys: the context, and what lives in it, may outlive this machine."""
        self._owned.append((destroy, handle))
        return handle

    def _kv_bytes(self) -> int:
        kv = self.program.buffer("kv")
        return kv.size * kv.element_bytes

    def _check_memory(self) -> None:
        resident, staging = weight_bytes(self.program, self.model)
        need = resident + staging + self._kv_bytes() + (64 << 20)
        free, total = call(driver().cuMemGetInfo)
        if need > free:
            raise DeviceError(
                f"GPU memory: {need / 2**30:.2f} GiB needed (weights {resident / 2**30:.2f}, K/V "
                f"{self._kv_bytes() / 2**30:.2f}, loading {staging / 2**30:.2f}), {free / 2**30:.2f} of "
                f"{total / 2**30:.2f} GiB free; free some or build with a smaller --max-seq"
            )

    def _check_resident(self, kernel: Any, shared: int) -> None:
        """A cooperative grid must be resident as a whole, or its CTAs would wait for ones that never start."""
        per_sm = call(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor, kernel, self._threads(), shared)
        if per_sm < 1:
            raise DeviceError(
                f"the kernel ({self._threads()} threads, {shared} bytes shared) does not fit an SM; rebuild"
            )

    def _threads(self) -> int:
        return 32 * (self.program.config["compute_warps"] + 2)

    def _make_params(self, tables: Tables, weights: WeightLoader) -> Params:
        memory, config = self._memory, self.program.config
        tied = bool(config["tied_head"])
        self._tokens = memory.pin(np.int32, config["max_seq"] + 1)
        self._control = memory.pin(np.int32, 16)
        self._report = memory.pin(REPORT, 1)
        self._given_capacity = config["max_seq"]
        return Params(
            tape=weights.tape,
            tape_begin=memory.upload(weights.tape_begin),
            embedding=weights.tape if tied else weights.embedding(),
            head_units=weights.head_units() if tied else 0,
            packets=memory.allocate(8 * config["packets"], fill=0),
            kv=memory.allocate(self._kv_bytes(), fill=0),
            rope=memory.allocate(4 * config["rope_tables"] * config["max_seq"] * config["rotary_dim"], fill=0),
            norms=memory.upload(norm_array(self.program, self.model.checkpoint)),
            biases=memory.upload(bias_array(self.program, self.model.checkpoint)),
            records=memory.upload(tables.records),
            ranges=memory.upload(tables.ranges),
            given=memory.allocate(4 * config["max_seq"]),
            stop_ids=memory.allocate(4 * 64),
            tokens=self._tokens.ctypes.data,
            control=self._control.ctypes.data,
            report=self._report.ctypes.data,
            wait_limit=WAIT_LIMIT,
        )

    # Launching

    def _set(self, launch: Launch) -> None:
        given = np.asarray(launch.given, np.int32)
        stops = np.asarray(sorted(set(launch.stop_ids)), np.int32)[:64]
        to_device(self._params.given, given)
        to_device(self._params.stop_ids, stops)
        self._tokens[:] = _NO_TOKEN
        self._control[:] = 0
        self._report[0] = 0
        params = self._params
        params.start_pos, params.steps, params.head_from = launch.start_pos, launch.steps, launch.head_from
        params.given_count, params.stop_count = len(given), len(stops)
        params.epoch = self._epoch
        params.logits = self._logits_buffer(launch)

    def _logits_buffer(self, launch: Launch) -> int:
        if not launch.want_logits:
            return 0
        need = 4 * max(0, launch.steps - launch.head_from) * self.vocab
        pointer, size = self._logits
        if size < need:
            if pointer:
                self._memory.free(pointer)
            self._logits = (self._memory.allocate(need), need)
        return self._logits[0]

    def _launch(self, launch: Launch, on_token: Callable[[int], None]) -> list[int]:
        cuda = driver()
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(self._params))
        call(cuda.cuEventRecord, self._events[0], self._stream)
        call(
            cuda.cuLaunchCooperativeKernel, self._kernel, self.program.sms, 1, 1, self._threads(), 1, 1,
            self._shared_bytes, self._stream, ctypes.addressof(pointers),
        )  # fmt: skip
        call(cuda.cuEventRecord, self._events[1], self._stream)
        tokens: list[int] = []
        while not self._finished():
            self._emit(tokens, on_token)
            if launch.should_stop is not None and launch.should_stop():
                self._control[0] = 1
            time.sleep(_POLL_SECONDS)
        self._emit(tokens, on_token)
        self.last_launch_ms = float(call(cuda.cuEventElapsedTime, *self._events))
        return tokens

    def _finished(self) -> bool:
        cuda = driver()
        (status,) = cuda.cuStreamQuery(self._stream)
        if status == cuda.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if int(status) != 0:
            self._raise_failure()
            _, text = cuda.cuGetErrorString(status)
            raise DeviceError(f"the kernel failed: {text.decode()}; load the artifact again")
        return True

    def _emit(self, tokens: list[int], on_token: Callable[[int], None]) -> None:
        while len(tokens) < len(self._tokens) and self._tokens[len(tokens)] != _NO_TOKEN:
            tokens.append(int(self._tokens[len(tokens)]))
            on_token(tokens[-1])

    # Results

    def _stopped(self) -> Stopped:
        reasons: dict[int, Stopped] = {0: "length", 1: "stop", 2: "cancelled"}
        return reasons[int(self._report["stopped"][0])]

    def _read_logits(self, launch: Launch, steps: int) -> npt.NDArray[np.float32] | None:
        if not launch.want_logits:
            return None
        logits = np.empty((max(0, steps - launch.head_from), self.vocab), np.float32)
        to_host(logits, self._logits[0])
        return logits

    def _raise_failure(self) -> None:
        report = {name: int(self._report[name][0]) for name in REPORT.names or ()}
        status = report["status"]
        if status & HANG:
            raise DeviceError(self._hang_text(report))
        if status & OVERFLOW:
            layer, head = divmod(report["record"], self.program.config["kv_heads"])
            raise DeviceError(
                f"K/V of layer {layer}, head {head} at position {report['step']} overflows {self.program.kv_dtype}; "
                "build with --kv-dtype bf16 or fp32"
            )
        if status & NOT_FINITE:
            raise DeviceError("a logit is not a number; check the checkpoint's weights")

    def _hang_text(self, report: dict[str, int]) -> str:
        return (
            f"the kernel hung: SM {report['sm']}, lane {LANES[report['lane']]}, {self._task_text(report['record'])}, "
            f"step {report['step']}; load the artifact again, and report this with the artifact's program.json"
        )

    def _task_text(self, record: int) -> str:
        """The task that hung, and the unit that it may have taken along, whose weights are waited for in its name."""
        header, opcodes = self._current.header, self._current.records[record : record + 2, 0]
        ops = [header["variants"][int(opcode)]["op"] for opcode in opcodes]
        takes = header["config"]["loaded_tiles"] and ops[0] in FEEDING and ops[-1] in UNITS
        return f"task {record} ({ops[0]})" + (f" or the next one ({ops[1]})" if takes else "")


def check_device(program: Program, device: Any) -> None:
    """Raise DeviceError unless the GPU has the architecture, SMs and cooperative launch that the program needs."""
    cuda = driver()
    attributes = cuda.CUdevice_attribute

    def value(name: str) -> int:
        return int(call(cuda.cuDeviceGetAttribute, getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), device))

    name = call(cuda.cuDeviceGetName, 128, device).split(b"\0")[0].decode()
    arch = f"sm_{value('COMPUTE_CAPABILITY_MAJOR')}{value('COMPUTE_CAPABILITY_MINOR')}"
    target = program.target
    if arch != target.arch:
        raise DeviceError(
            f"this artifact is for {target.name} ({target.arch}), the GPU is {name} ({arch}); build again"
        )
    sms = value("MULTIPROCESSOR_COUNT")
    if sms < program.sms:
        raise DeviceError(f"this artifact needs {program.sms} SMs ({target.name}), {name} has {sms}; build again")
    if not value("COOPERATIVE_LAUNCH"):
        raise DeviceError(f"{name} cannot launch cooperative kernels (under MPS or MIG?); use the whole GPU")
