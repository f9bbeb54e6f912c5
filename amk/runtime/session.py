"""Sessions: text or token ids in, greedy tokens out, on whichever machine was loaded."""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from amk.errors import UsageError
from amk.model.graph import ModelGraph
from amk.progress import SILENT, Progress
from amk.runtime.decoder import Decoder
from amk.runtime.machine import Machine, Stopped

if TYPE_CHECKING:
    from amk.model.tokenizer import StreamDecoder, Tokenizer

Prompt = str | Sequence[int]


@dataclass(frozen=True)
class Token:
    """A new token and the text that it completes: empty for a stop token, or inside a character."""

    id: int
    text: str


@dataclass
class Timings:
    """Of one generation. The prompt's `reused_tokens` were still in the K/V cache."""

    prompt_tokens: int
    reused_tokens: int
    new_tokens: int = 0
    first_token_seconds: float = 0.0
    total_seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Of the tokens after the first; 0 where there are none."""
        decoding = self.total_seconds - self.first_token_seconds
        return (self.new_tokens - 1) / decoding if self.new_tokens > 1 and decoding > 0 else 0.0


@dataclass(frozen=True)
class Generation:
    """The new tokens (a stop token included) and their text.

    `finish_reason` is "stop" after a stop token, "length" at `max_new_tokens` or the end of the K/V cache,
    "cancelled" after `Session.cancel`.
    """

    text: str
    token_ids: list[int]
    finish_reason: Stopped
    timings: Timings


@dataclass
class _Run:
    """One generation: what was asked, and how it went."""

    ids: list[int]
    limit: int
    timings: Timings
    decoder: StreamDecoder | None
    started: float = field(default_factory=time.perf_counter)
    finish_reason: Stopped = "length"

    def note(self) -> None:
        """Count a token."""
        self.timings.total_seconds = time.perf_counter() - self.started
        self.timings.first_token_seconds = self.timings.first_token_seconds or self.timings.total_seconds
        self.timings.new_tokens += 1


class Session:
    """A loaded model. One generation at a time; a prompt that begins like the last sequence reuses its K/V.

    Works with token ids alone where the model comes without a tokenizer. Closing frees the machine's memory.
    """

    def __init__(self, machine: Machine, graph: ModelGraph, tokenizer_source: Path | None = None) -> None:
        self.machine, self.graph = machine, graph
        self._tokenizer_source = tokenizer_source
        self._decoder = Decoder(machine, graph.rope, graph.eos_token_ids)
        self._busy = threading.Lock()
        self._cancelled = threading.Event()
        self._closed = False

    def generate(self, prompt_or_ids: Prompt, max_new_tokens: int = 256, chat: bool = False) -> Generation:
        """Continue a prompt greedily. With `chat` the prompt is a user's message in the model's chat template.

        Raises UsageError for a prompt that is empty, too long or has ids out of range, DeviceError if the machine
        fails.
        """
        run = self._prepare(prompt_or_ids, max_new_tokens, chat)
        tokens = list(self._tokens(run))
        text = "".join(token.text for token in tokens)
        return Generation(text, [token.id for token in tokens], run.finish_reason, run.timings)

    def stream(self, prompt_or_ids: Prompt, max_new_tokens: int = 256, chat: bool = False) -> Iterator[Token]:
        """Like `generate`, but yields each token as it appears; closing the iterator ends the generation.

        Errors of the request are raised by the call, errors of the machine by the iterator.
        """
        return self._tokens(self._prepare(prompt_or_ids, max_new_tokens, chat))

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """float32 [len(ids), vocab]: the logits after every token. Raises like `generate`."""
        checked = self._check_ids(ids)
        with self._exclusive():
            return self._decoder.logits(checked)

    def cancel(self) -> None:
        """End the running generation soon; callable from another thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Free the machine's memory. A generation that is still running is cancelled first."""
        if self._closed:
            return
        self.cancel()
        with self._busy:
            self._closed = True
            self.machine.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, loaded on first use. Raises UsageError if it comes without one."""
        from amk.model.tokenizer import load_tokenizer

        if self._tokenizer_source is None:
            raise UsageError("the model comes without a tokenizer; give the prompt as token ids")
        return load_tokenizer(self._tokenizer_source)

    # One generation

    def _prepare(self, prompt: Prompt, max_new_tokens: int, chat: bool) -> _Run:
        if not isinstance(max_new_tokens, int) or isinstance(max_new_tokens, bool) or max_new_tokens < 1:
            raise UsageError(f"max_new_tokens is {max_new_tokens!r}; give a whole number of at least 1")
        ids = self._check_ids(self._encode(prompt, chat) if isinstance(prompt, str) else _unwrapped(prompt, chat))
        # The last sampled token needs no K/V, so one more fits than there are positions left.
        limit = min(max_new_tokens, self.machine.max_seq - len(ids) + 1)
        decoder = None
        if self._tokenizer_source is not None:
            from amk.model.tokenizer import StreamDecoder

            decoder = StreamDecoder(self.tokenizer, ids)
        return _Run(ids, limit, Timings(len(ids), self._decoder.reusable(ids)), decoder)

    def _encode(self, text: str, chat: bool) -> list[int]:
        if not text:
            raise UsageError("the prompt is empty; give at least one character")
        if chat:
            return self.tokenizer.encode_chat([{"role": "user", "content": text}])
        return self.tokenizer.encode(text)

    def _check_ids(self, ids: Sequence[int]) -> list[int]:
        checked = [operator.index(token) for token in ids]
        if not checked:
            raise UsageError("the prompt is empty; give at least one token")
        if len(checked) > self.machine.max_seq:
            raise UsageError(
                f"the prompt has {len(checked)} tokens, the artifact takes {self.machine.max_seq}; shorten it, or "
                "build with a larger --max-seq"
            )
        for token in checked:
            if not 0 <= token < self.machine.vocab:
                raise UsageError(f"token id {token} is out of range; this model has 0 to {self.machine.vocab - 1}")
        return checked

    def _tokens(self, run: _Run) -> Iterator[Token]:
        """Decode in a thread, so that tokens, and Ctrl-C, come through while a launch is running."""
        events: SimpleQueue[int | BaseException | None] = SimpleQueue()
        self._acquire()
        worker = threading.Thread(target=self._work, args=(run, events), name="amk-decode", daemon=True)
        worker.start()
        try:
            while (event := events.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                run.note()
                yield Token(event, self._text(run, event))
        finally:
            self.cancel()
            worker.join()

    def _work(self, run: _Run, events: SimpleQueue[int | BaseException | None]) -> None:
        try:
            run.finish_reason = self._decoder.decode(run.ids, run.limit, events.put, self._cancelled.is_set)
            events.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again by the consumer
            events.put(error)
        finally:
            self._busy.release()

    def _text(self, run: _Run, token: int) -> str:
        """What the token adds to the text; the last one brings what was held back."""
        if run.decoder is None:
            return ""
        last = run.timings.new_tokens == run.limit or token in self.graph.eos_token_ids
        return run.decoder.push(token) + (run.decoder.flush() if last else "")

    def _acquire(self) -> None:
        if not self._busy.acquire(blocking=False):
            raise UsageError("the session is busy with another generation; finish or close that one first")
        if self._closed:
            self._busy.release()
            raise UsageError("the session is closed; load the artifact again")
        self._cancelled.clear()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._acquire()
        try:
            yield
        finally:
            self._busy.release()


def _unwrapped(ids: Sequence[int], chat: bool) -> Sequence[int]:
    if chat:
        raise UsageError("chat=True wraps text, not token ids; give the prompt as text, or leave chat out")
    return ids


def load(
    directory: str | Path, device: str = "auto", progress: Progress | None = None, *, unsafe: bool = False
) -> Session:
    """Open an artifact folder on a `device`: "cuda", "cpu", or "auto", the GPU if there is one that fits.

    Raises ArtifactError if the folder or its checkpoint is missing or was changed, RejectedProgramError if the
    validator's certificate does not cover it (`unsafe` runs it anyway), DeviceError if the GPU cannot run it,
    UsageError for another `device`.
    """
    from amk.runtime.load import open_artifact

    machine, model = open_artifact(Path(directory), device, progress or SILENT, unsafe)
    return Session(machine, model.graph, model.tokenizer_source)
