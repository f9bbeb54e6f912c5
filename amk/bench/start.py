"""How long a user waits: loading the artifact, and the first token of a short prompt."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from amk.artifact import Artifact
from amk.progress import Progress
from amk.runtime.cuda import CudaMachine
from amk.runtime.load import open_checkpoint
from amk.runtime.session import Session

PROMPT_TOKENS = 32
PROMPTS = 7


@dataclass(frozen=True)
class Start:
    """Seconds to open and check the checkpoint, to load it onto the GPU (the context exists), to the first token."""

    open_seconds: float
    load_seconds: float
    first_token_seconds: float
    prompt_tokens: int


@contextmanager
def loaded(artifact: Artifact, progress: Progress) -> Iterator[tuple[CudaMachine, Start]]:
    """The machine of an artifact and how long it took to get there."""
    began = time.perf_counter()
    model = open_checkpoint(artifact, progress)
    opened = time.perf_counter()
    machine = CudaMachine(artifact.tables, artifact.cubin, model, progress)
    ready = time.perf_counter()
    try:
        tokens = min(PROMPT_TOKENS, machine.max_seq)
        first = first_token_seconds(Session(machine, model.graph), tokens)
        yield machine, Start(opened - began, ready - opened, first, tokens)
    finally:
        machine.close()


def first_token_seconds(session: Session, prompt_tokens: int) -> float:
    """Median over prompts of `prompt_tokens` random tokens that share no beginning, so that nothing is reused."""
    vocab = session.machine.vocab
    prompts = [[(first + 7919 * i) % vocab for i in range(prompt_tokens)] for first in range(PROMPTS)]
    return statistics.median(session.generate(ids, 1).timings.first_token_seconds for ids in prompts)
