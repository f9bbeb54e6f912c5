"""The cos/sin table of a rotary embedding, in the arithmetic of transformers' `modeling_rope_utils`.

transformers computes in fp32: inverse frequencies, then angle = position * inverse frequency rounded to fp32, then cos
and sin of that. At position 100,000 an exact table would differ from it in the third digit, so this one rounds where it
rounds. Powers, cos and sin are taken in fp64 and rounded once, which is what a good fp32 library returns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from amk.errors import UsageError
from amk.model.graph import Rope

F32 = npt.NDArray[np.float32]

_BLOCK_ROWS = 4096  # bounds the fp64 temporaries


def rope_table(rope: Rope, max_seq: int, prompt_len: int = 0) -> F32:
    """float32 [max_seq, dim/2, 2]: (cos, sin) for every position.

    `prompt_len` matters where angles depend on the length (`Rope.by_length`): a prompt runs as one forward pass in
    transformers, so all its rows use the frequencies for the whole prompt. Raises UsageError for a negative or zero
    `max_seq`.
    """
    if max_seq <= 0:
        raise UsageError(f"max_seq = {max_seq} is not a length; give a positive number of positions")
    table = np.empty((max_seq, rope.dim // 2, 2), np.float32)
    fixed = inverse_frequencies(rope, prompt_len) if rope.kind != "dynamic" else None
    for start in range(0, max_seq, _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, max_seq)
        positions = np.arange(start, stop, dtype=np.float32)[:, None]
        inverse = _dynamic_rows(rope, start, stop, prompt_len) if fixed is None else fixed[None, :]
        angles = (positions * inverse).astype(np.float64)
        table[start:stop, :, 0] = np.cos(angles)
        table[start:stop, :, 1] = np.sin(angles)
    if rope.attention_factor != 1:
        table *= np.float32(rope.attention_factor)
    return table


def rope_tables(ropes: Sequence[Rope], max_seq: int, prompt_len: int = 0) -> F32:
    """float32 [ropes, max_seq, dim/2, 2]: the table of each; all rotate as many dimensions."""
    return np.stack([rope_table(rope, max_seq, prompt_len) for rope in ropes])


class PromptTables:
    """The tables of one sequence after the other: a prompt should not wait tens of milliseconds for what it has.

    Only where angles depend on the length (`Rope.by_length`) does another prompt need other tables.
    """

    def __init__(self, ropes: Sequence[Rope], max_seq: int) -> None:
        self._ropes, self._max_seq = ropes, max_seq
        self._length: int | None = None

    def for_prompt(self, prompt_len: int) -> F32 | None:
        """float32 [ropes, max_seq, dim/2, 2] for a prompt of `prompt_len` tokens; None if the last ones still hold."""
        length = prompt_len if any(rope.by_length for rope in self._ropes) else 0
        if length == self._length:
            return None
        self._length = length
        return rope_tables(self._ropes, self._max_seq, length)


def inverse_frequencies(rope: Rope, length: int = 0) -> F32:
    """float32 [dim/2], for sequences of `length`; 0: at the length the model was trained for."""
    if rope.kind == "longrope":
        divisors = rope.long_divisors if length > rope.original_max_position else rope.short_divisors
        return np.asarray(np.float32(1) / (np.array(divisors, np.float32) * _bases(np.float32(rope.theta), rope.dim)))
    inverse = _powers(np.float32(rope.theta), rope.dim)
    if rope.kind == "linear":
        return inverse / np.float32(rope.factor)
    if rope.kind == "llama3":
        return _llama3(inverse, rope)
    if rope.kind == "yarn":
        return _yarn(inverse, rope)
    return inverse


def _powers(base: np.float32 | F32, dim: int) -> F32:
    """1 / base ** (0, 2, ..)/dim; each step rounded to fp32. `base` broadcasts from the left."""
    return np.asarray(np.float32(1.0) / _bases(base, dim), np.float32)


def _bases(base: np.float32 | F32, dim: int) -> F32:
    """base ** (0, 2, ..)/dim, rounded to fp32."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return np.power(np.asarray(base, np.float64)[..., None], exponents.astype(np.float64)).astype(np.float32)


def _dynamic_rows(rope: Rope, start: int, stop: int, prompt_len: int) -> F32:
    """float32 [rows, dim/2]: NTK-scaled frequencies of each position, from the length when it is first seen."""
    length = np.maximum(np.arange(start + 1, stop + 1), max(prompt_len, rope.original_max_position))
    factor = np.float32(rope.factor)
    ratio = factor * length.astype(np.float32) / np.float32(rope.original_max_position)
    growth = ratio - np.float32(rope.factor - 1)
    exponent = np.float64(np.float32(rope.dim / (rope.dim - 2)))
    scaled = np.float32(rope.theta) * np.power(growth.astype(np.float64), exponent).astype(np.float32)
    # Within the trained length transformers never recomputes, so the frequencies are the plain ones.
    base = np.where(length > rope.original_max_position, scaled, np.float32(rope.theta))
    return _powers(base.astype(np.float32), rope.dim)


def _yarn(inverse: F32, rope: Rope) -> F32:
    """YaRN (arXiv 2309.00071): pairs below `low` are kept, those above `high` slowed by `factor`, a ramp between."""
    slow = np.float32(1) / (np.float32(rope.factor) * _bases(np.float32(rope.theta), rope.dim))
    pairs = np.arange(rope.dim // 2, dtype=np.float32)
    kept = np.float32(1) - np.clip((pairs - np.float32(rope.low)) / np.float32(rope.high - rope.low), 0, 1)
    return np.asarray(slow * (np.float32(1) - kept) + inverse * kept, np.float32)


def _llama3(inverse: F32, rope: Rope) -> F32:
    """Llama 3.1's scaling: long waves are slowed by `factor`, short ones kept, those between interpolated."""
    factor, low = np.float32(rope.factor), np.float32(rope.low_freq_factor)
    length = np.float32(rope.original_max_position)
    # A number divided by a tensor is that number times the tensor's reciprocal in torch: two roundings, not one.
    wavelength = np.float32(2 * math.pi) * (np.float32(1) / inverse)
    long = wavelength > np.float32(rope.original_max_position / rope.low_freq_factor)
    short = wavelength < np.float32(rope.original_max_position / rope.high_freq_factor)
    smooth = (length * (np.float32(1) / wavelength) - low) / np.float32(rope.high_freq_factor - rope.low_freq_factor)
    between = (np.float32(1) - smooth) * inverse / factor + smooth * inverse
    return np.asarray(np.where(long, inverse / factor, np.where(short, inverse, between)), np.float32)
