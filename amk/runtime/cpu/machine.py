"""The CPU machine: a Program's device tables, executed in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from amk.errors import DeviceError
from amk.model.bf16 import from_bf16
from amk.model.rope import PromptTables
from amk.model.source import Model
from amk.progress import SILENT, Progress
from amk.runtime.cpu.blas import single_threaded
from amk.runtime.cpu.execute import Constants, bind_plan, unit_atoms
from amk.runtime.cpu.kv import KvCache
from amk.runtime.cpu.nodes import LinearNode
from amk.runtime.cpu.plan import make_plan
from amk.runtime.cpu.step import Step
from amk.runtime.machine import Launch, LaunchResult, Stopped, check_launch
from amk.tape import Bits, bias_array, from_fragments, norm_array, pack_tapes
from schedule_ir import Tables, decode
from schedule_ir.layout import TILE_ROWS
from schedule_ir.ops.token import sample_meaning

F32 = npt.NDArray[np.float32]


class CpuMachine:
    """A `Machine`. Holds the weights as fp32, twice the size that they have in bf16.

    Raises RejectedProgramError if the lanes of the Program deadlock or do not fit together.
    """

    slice_steps = 64

    def __init__(self, tables: Tables, model: Model, progress: Progress | None = None) -> None:
        self._program = decode(tables)
        self.max_seq, self.vocab = self._program.config["max_seq"], self._program.config["vocab"]
        self._ropes = PromptTables(model.graph.ropes, self.max_seq)
        self._load(model, progress or SILENT)
        self.reset(0)

    def _load(self, model: Model, progress: Progress) -> None:
        program, checkpoint = self._program, model.checkpoint
        with progress.step("Planning"):
            self._plan = make_plan(program)
        tapes = pack_tapes(program, checkpoint, progress)
        self._kv = KvCache(program.config, program.kv_dtype)
        self._embed = self._embedding(model, tapes)
        constants = Constants(tapes, norm_array(program, checkpoint), bias_array(program, checkpoint), self._kv)
        self._bound = bind_plan(self._plan, program, constants, progress)

    def _embedding(self, model: Model, tapes: list[Bits]) -> Callable[[int], F32]:
        """Token -> float32 [hidden]: a row of the head's units where the weights are tied, as on the GPU."""
        hidden, head = self._program.config["hidden"], self._plan.nodes[self._plan.logits]
        if not self._program.config["tied_head"]:
            rows = model.checkpoint.bf16(model.graph.embed.name)
            return lambda token: from_bf16(rows[token])
        assert isinstance(head, LinearNode)
        units = np.concatenate(unit_atoms(head, tapes), 1)
        return lambda token: from_fragments(units[token // TILE_ROWS][None])[0, token % TILE_ROWS, :hidden]

    def reset(self, prompt_len: int) -> None:
        """Begin a new sequence whose prompt has `prompt_len` tokens."""
        tables = self._ropes.for_prompt(prompt_len)
        if tables is not None:
            self._cos_sin = tables

    def run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        """Execute a launch: see `Machine.run`. Raises DeviceError for K/V or logits that are not finite."""
        check_launch(launch, self.max_seq, self.vocab)
        with single_threaded():
            return self._run(launch, on_token)

    def _run(self, launch: Launch, on_token: Callable[[int], None]) -> LaunchResult:
        tokens: list[int] = []
        kept: list[F32] = []
        stopped: Stopped = "length"
        done = 0
        while done < launch.steps and stopped == "length":
            if launch.should_stop is not None and launch.should_stop():
                stopped = "cancelled"
                break
            token = launch.given[done] if done < len(launch.given) else tokens[-1]
            logits = self._step(token, launch.start_pos + done, done >= launch.head_from)
            done += 1
            if logits is None:
                continue
            if launch.want_logits:
                kept.append(logits)
            if done >= len(launch.given):
                tokens.append(self._sample(logits, launch.start_pos + done - 1))
                on_token(tokens[-1])
                stopped = "stop" if tokens[-1] in launch.stop_ids else "length"
        logits_of_steps = np.array(kept, np.float32).reshape(-1, self.vocab) if launch.want_logits else None
        return LaunchResult(tokens, logits_of_steps, done, stopped)

    def _step(self, token: int, pos: int, head: bool) -> F32 | None:
        """One token through BODY, and HEAD if wanted: float32 [vocab]."""
        step = Step(self._embed(token), pos, self._cos_sin[:, pos])
        values: list[Any] = []
        for run in self._bound if head else self._bound[: self._plan.body]:
            values.append(run(values, step))
        return values[self._plan.logits][: self.vocab] if head else None

    def _sample(self, logits: F32, pos: int) -> int:
        token = sample_meaning(logits)
        if token < 0:
            raise DeviceError(f"a logit at position {pos} is NaN; check the checkpoint's weights")
        return token

    def kv_rows(self, begin: int, end: int) -> F32:
        """Cached rows: see `Machine.kv_rows`."""
        return self._kv.rows(begin, end)

    def close(self) -> None:
        """Free the weights and the cache; again: nothing."""
        self._bound = []
        for name in ("_kv", "_embed"):
            self.__dict__.pop(name, None)
