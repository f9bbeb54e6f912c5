"""Random weights: golden values for the kernel to match, an independent scalar implementation, and statistics."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from amk.errors import UnsupportedModelError
from amk.model.bf16 import from_bf16, to_bf16
from amk.model.graph import TensorRef
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.random_weights import fill, hash_elements, random_bf16, random_fp32, random_key, random_scale
from amk.model.walker import walk
from tests.model.builders import config_with

MATRIX = TensorRef("model.layers.0.self_attn.q_proj.weight", (48, 64))
NORM = TensorRef("model.norm.weight", (64,))
BIAS = TensorRef("model.layers.0.self_attn.q_proj.bias", (64,))
EMBED = TensorRef("model.embed_tokens.weight", (96, 64))


def mix(x: int) -> int:
    """MurmurHash3's 32-bit finaliser, from its description."""
    x ^= x >> 16
    x = x * 0x85EBCA6B % 2**32
    x ^= x >> 13
    x = x * 0xC2B2AE35 % 2**32
    return x ^ x >> 16


def scalar_hash(seed: int, name: str, index: int) -> int:
    word = struct.unpack("<I", hashlib.sha256(name.encode()).digest()[:4])[0]
    key = mix(mix((mix(seed % 2**32 ^ 0x9E3779B9) + (seed >> 32)) % 2**32) ^ word)
    return mix((mix(index % 2**32 ^ key) + (index >> 32) * 0x9E3779B1) % 2**32)


@pytest.mark.parametrize("seed", [0, 1, 2**32 + 5])
def test_hash_matches_the_written_recipe(seed: int) -> None:
    for start in (0, 2**32 - 2):
        got = hash_elements(random_key(seed, MATRIX.name), start, start + 4)
        assert got.tolist() == [scalar_hash(seed, MATRIX.name, start + i) for i in range(4)]


def test_values_match_the_written_recipe() -> None:
    matrix, norm = random_fp32(7, MATRIX).reshape(-1), random_fp32(7, NORM)
    step = np.float32(np.float32(0.6) / np.float32(8.0)) / np.float32(147.8)
    for i in range(64):
        h = scalar_hash(7, MATRIX.name, i)
        value = np.float32(sum(h.to_bytes(4, "little")) - 510) * step
        assert matrix[i] == from_bf16(to_bf16(np.array([value])))[0]
        assert norm[i] == np.float32(0.75 + (scalar_hash(7, NORM.name, i) >> 8) * 2.0**-25)


def test_golden_values() -> None:
    """Pinned: kernels/random.cuh has to produce these very bits."""
    assert random_key(1, MATRIX.name) == GOLDEN_KEY
    assert random_bf16(1, MATRIX).reshape(-1)[:8].tolist() == GOLDEN_MATRIX
    assert random_fp32(1, NORM)[:4].view(np.uint32).tolist() == GOLDEN_NORM
    assert random_bf16(1, BIAS)[:4].tolist() == GOLDEN_BIAS


GOLDEN_KEY = 0x7B780058
GOLDEN_MATRIX = [0xBC81, 0xBDF3, 0x3C69, 0xBC96, 0x3B69, 0xBC05, 0x3C3F, 0xBD39]
GOLDEN_NORM = [0x3F85CD1A, 0x3F5C5B47, 0x3F56E6F0, 0x3F8F35E8]
GOLDEN_BIAS = [0x3C3C, 0xBCB5, 0xBA78, 0xBD1B]


def test_scales() -> None:
    assert random_scale(MATRIX) == np.float32(0.075)
    assert random_scale(EMBED) == random_scale(BIAS) == np.float32(0.02)
    big = TensorRef("w.weight", (512, 1024))
    values = random_fp32(3, big)
    assert values.std() == pytest.approx(0.6 / 32, rel=0.01)
    assert abs(values.mean()) < 1e-4
    norm = random_fp32(3, TensorRef("n.weight", (4096,)))
    assert (norm.min(), norm.max()) == pytest.approx((0.75, 1.25), abs=0.001)


def test_blocks_do_not_show() -> None:
    ref = TensorRef("w.weight", (600, 1000))
    whole = random_bf16(5, ref)
    np.testing.assert_array_equal(from_bf16(whole).reshape(-1)[262100:262200], fill(5, ref, 262100, 262200))
    np.testing.assert_array_equal(from_bf16(whole), random_fp32(5, ref))


def test_seed_and_name_matter() -> None:
    assert not np.array_equal(random_bf16(1, MATRIX), random_bf16(2, MATRIX))
    other = TensorRef("model.layers.1.self_attn.q_proj.weight", (48, 64))
    assert not np.array_equal(random_bf16(1, MATRIX), random_bf16(1, other))


def test_checkpoint() -> None:
    graph = walk(config_with(attention_bias=True))
    checkpoint = RandomCheckpoint(graph, 4)
    assert checkpoint.kind == "random"
    for ref in graph.tensors():
        assert checkpoint.bf16(ref.name).shape == checkpoint.shape(ref.name) == ref.shape
    assert checkpoint.digest == RandomCheckpoint(graph, 4).digest
    assert checkpoint.digest != RandomCheckpoint(graph, 5).digest
    assert checkpoint.digest != RandomCheckpoint(walk(config_with()), 4).digest
    with pytest.raises(UnsupportedModelError, match="tensor nope"):
        checkpoint.shape("nope")


def test_bf16_rounding() -> None:
    values = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7F800001, 0xFFFFFFFF, 0x80000001], np.uint32)
    got = to_bf16(values.view(np.float32)).tolist()
    assert got == [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0x7FC0, 0xFFFF, 0x8000]


def test_bf16_agrees_with_torch() -> None:
    import torch

    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    values = values[~np.isnan(values)]
    expected = torch.from_numpy(values).bfloat16().view(torch.uint16).numpy()
    np.testing.assert_array_equal(to_bf16(values), expected)
    doubles = rng.standard_normal(10_000)
    np.testing.assert_array_equal(to_bf16(doubles), torch.from_numpy(doubles).bfloat16().view(torch.uint16).numpy())
