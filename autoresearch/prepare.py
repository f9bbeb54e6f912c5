"""The oracle's answers ahead of time: they need minutes of CPU for a large model, and no GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from amk.model.source import Model, open_model
from amk.verify.gates import INTEGER_POSITIONS, question
from amk.verify.models import integer_model
from autoresearch.cache import cached_oracle
from autoresearch.rungs import deep_question
from autoresearch.settings import gate_seed
from autoresearch.subject import Subject

Question = tuple[str, Model, Sequence[int], Sequence[int]]


def questions(subject: Subject, model: Model, seed: int, nights: int) -> Iterator[Question]:
    """(what, model, ids, positions) of everything that measured nights 1 .. `nights` ask of the oracle."""
    vocab = model.graph.vocab
    yield "the workload's positions", model, *deep_question(subject.objective, vocab)
    integers = integer_model(model)
    for night in range(1, nights + 1):
        ids, positions = question("cuda", gate_seed(seed, night), subject.max_seq, vocab)
        yield f"boundary positions, night {night}", model, ids, positions
        yield f"integer weights, night {night}", integers, ids[: INTEGER_POSITIONS[-1] + 1], INTEGER_POSITIONS


def prepare(subject: Subject, cache: Path, seed: int, nights: int, say: Callable[[str], None]) -> None:
    """Answer them into the cache of a measured search; what is there already is not computed again."""
    model = open_model(subject.model, subject.random_seed)
    oracle = cached_oracle(cache / "oracle", subject.kv_dtype)
    for what, of, ids, positions in questions(subject, model, seed, nights):
        oracle(of, ids, positions)
        say(f"oracle: {what}")
