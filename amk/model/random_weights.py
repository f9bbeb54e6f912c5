"""Seeded weights that a GPU reproduces bit for bit: 32-bit integer arithmetic and one fp32 operation per element.

The recipe (kernels/random.cuh implements the same):

    fmix32(x):  x ^= x >> 16;  x *= 0x85EBCA6B;  x ^= x >> 13;  x *= 0xC2B2AE35;  x ^= x >> 16     (MurmurHash3)
    key(seed, name) = fmix32(fmix32(lo32(seed) ^ 0x9E3779B9) + hi32(seed)) ^ t, and fmix32 of that,
                      where t = the first 4 bytes of sha256(name), little-endian
    hash(key, i)    = fmix32(fmix32(lo32(i) ^ key) + hi32(i) * 0x9E3779B1)                 all modulo 2^32

for element index i in row-major order. From h = hash(key, i):

    matrix, embedding, bias: b = byte0 + byte1 + byte2 + byte3 of h (0..1020);
        value = bf16(fp32(b - 510) * step): one fp32 multiplication, then rounded to nearest even;
        step = fp32(scale) / fp32(147.8) in fp32
        (the sum of four bytes has standard deviation 147.8, so `scale` is the standard deviation of the weights)
    norm: value = 0.75 + (h >> 8) * 2^-25 in fp32. (h >> 8) * 2^-25 is exact; the addition rounds once, nearest even.
        This is 0.75 + 0.5 u with u uniform in [0, 1).

Scales: matrices fp32(0.6) / fp32(sqrt(cols)) in fp32, with sqrt correctly rounded in fp32, embeddings (also where they
serve as the head) and biases 0.02. With these, activations of a random model neither vanish nor overflow.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import numpy.typing as npt

from amk.model.bf16 import from_bf16, to_bf16
from amk.model.graph import TensorRef

BYTE_SUM_MEAN = 510
BYTE_SUM_DEVIATION = np.float32(147.8)
HIGH_WORD_MULTIPLIER = 0x9E3779B1
SEED_SALT = 0x9E3779B9

_MASK = 0xFFFFFFFF
_BLOCK = 1 << 18  # elements at a time: the temporaries stay in the CPU's cache
_U32 = npt.NDArray[np.uint32]


def random_key(seed: int, name: str) -> int:
    """The 32-bit key of a tensor. `seed` is taken modulo 2^64."""
    word = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    state = _mix_int((seed & _MASK) ^ SEED_SALT)
    return _mix_int(_mix_int((state + ((seed >> 32) & _MASK)) & _MASK) ^ word)


def random_scale(ref: TensorRef) -> np.float32:
    """Standard deviation of a matrix or a bias, in fp32 (norms have none: 0)."""
    if _is_norm(ref):
        return np.float32(0)
    if len(ref.shape) == 1 or "embed_tokens" in ref.name:
        return np.float32(0.02)
    return np.float32(np.float32(0.6) / np.sqrt(np.float32(ref.shape[1])))


def random_step(ref: TensorRef) -> np.float32:
    """What the centred byte sum is multiplied by, in fp32."""
    return random_scale(ref) / BYTE_SUM_DEVIATION


def random_bf16(seed: int, ref: TensorRef) -> npt.NDArray[np.uint16]:
    """A tensor's bf16 bit patterns in its shape (a norm is rounded to bf16 too)."""
    out = np.empty(math.prod(ref.shape), np.uint16)
    for start in range(0, out.size, _BLOCK):
        stop = min(start + _BLOCK, out.size)
        out[start:stop] = to_bf16(fill(seed, ref, start, stop)) if _is_norm(ref) else _bits(seed, ref, start, stop)
    return out.reshape(ref.shape)


def random_fp32(seed: int, ref: TensorRef) -> npt.NDArray[np.float32]:
    """A tensor in fp32 in its shape, exactly."""
    return fill(seed, ref, 0, math.prod(ref.shape)).reshape(ref.shape)


def fill(seed: int, ref: TensorRef, start: int, stop: int) -> npt.NDArray[np.float32]:
    """The fp32 values of elements start..stop-1 in row-major order; all but norms are bf16 values."""
    if not _is_norm(ref):
        return from_bf16(_bits(seed, ref, start, stop))
    hashed = hash_elements(random_key(seed, ref.name), start, stop)
    return np.float32(0.75) + (hashed >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-25)


def _bits(seed: int, ref: TensorRef, start: int, stop: int) -> npt.NDArray[np.uint16]:
    """bf16 bit patterns by table: a value depends on the byte sum only, and there are 1021 of those."""
    sums = np.arange(-BYTE_SUM_MEAN, BYTE_SUM_MEAN + 1).astype(np.float32)
    table = to_bf16(sums * random_step(ref))
    hashed = hash_elements(random_key(seed, ref.name), start, stop)
    # Two byte pairs added at once, then the two 16-bit halves.
    pairs = (hashed & np.uint32(0x00FF00FF)) + ((hashed >> np.uint32(8)) & np.uint32(0x00FF00FF))
    return table[(pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16))]


def _is_norm(ref: TensorRef) -> bool:
    return len(ref.shape) == 1 and not ref.name.endswith(".bias")


def hash_elements(key: int, start: int, stop: int) -> _U32:
    """uint32 [stop - start]: the hash of each element index."""
    index = np.arange(start, stop, dtype=np.uint64)
    low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
    return _mix(_mix(low ^ np.uint32(key)) + high * np.uint32(HIGH_WORD_MULTIPLIER))


def _mix(value: _U32) -> _U32:
    """fmix32 of every element; uint32 arithmetic wraps."""
    value = (value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    value = (value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return value ^ (value >> np.uint32(16))


def _mix_int(value: int) -> int:
    """fmix32 of one Python integer below 2^32."""
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & _MASK
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & _MASK
    return value ^ (value >> 16)
