"""Reading the K/V cache back: from the CPU machine, and out of the blocks that the GPU keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from amk.runtime.cpu.kv import round_kv
from amk.runtime.cuda import kv
from amk.runtime.machine import Launch
from schedule_ir import Program
from schedule_ir.layout import KV_BLOCK, kv_block_bytes
from tests.runtime.models import machine_of, program_of, save_model, tokens_of

KV_DTYPES = ["fp16", "bf16", "fp32"]


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_rows_of_the_cpu_machine_are_transformers(tmp_path: Path, kv_dtype: str) -> None:
    import torch

    hf, ids = save_model(tmp_path), tokens_of(20)
    machine, _ = machine_of(tmp_path, kv_dtype)
    machine.run(Launch(0, ids, len(ids), len(ids)), lambda _: None)
    rows = machine.kv_rows(3, 18)
    assert rows.shape == (2, 2, 2, 15, 16)
    with torch.no_grad():
        cache = hf(torch.tensor([ids]), use_cache=True).past_key_values
    for index, layer in enumerate(cache.layers):
        expected = np.stack([layer.keys[0, :, 3:18].numpy(), layer.values[0, :, 3:18].numpy()])
        np.testing.assert_allclose(rows[:, index], round_kv(expected, kv_dtype), rtol=2**-7, atol=1e-2)
    np.testing.assert_array_equal(rows, round_kv(rows, kv_dtype))


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_blocks_are_unpacked_as_they_are_packed(kv_dtype: str) -> None:
    torch = pytest.importorskip("torch")
    from amk.bench.reference import DTYPES, pack_kv

    keys, values = (torch.randn(2, 48, 32, generator=torch.Generator().manual_seed(i)) for i in range(2))
    keys, values = (x.to(DTYPES[kv_dtype]) for x in (keys, values))
    packed = pack_kv(keys, values).view(torch.uint8).numpy()
    for head in range(2):
        rows = kv.unpack_kv(packed[head].reshape(3, -1), kv_dtype)
        np.testing.assert_array_equal(rows, torch.stack([keys[head], values[head]]).float().numpy())


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_an_element_is_where_the_kernel_stores_it(kv_dtype: str) -> None:
    """key_word, value_word and store of kernels/kv_types.cuh, one element of K and of V each."""
    words: tuple[Callable[[int, int], int], ...] = (
        lambda p, d: ((p & 7) * 4 + (d & 7) // 2) * 4 + (p // 8) * 2 + (d % 16) // 8,
        lambda p, d: ((d & 7) * 4 + (p & 7) // 2) * 4 + ((d % 16) // 8) * 2 + p // 8,
    )
    size = 4 if kv_dtype == "fp32" else 2
    one = {"fp16": 0x3C00, "bf16": 0x3F80, "fp32": 0x3F800000}[kv_dtype]
    for p, d in ((0, 0), (5, 3), (9, 30), (14, 17)):
        block = np.zeros((1, 2 * 16 * 32 * size), np.uint8)
        for which, (word, half) in enumerate(((words[0](p, d), d & 1), (words[1](p, d), p & 1))):
            thread, index = word // 4, (word % 4) * 2 + half
            within = (index // 4) * 512 + (thread * 4 + index % 4) * 4 if size == 4 else (word * 2 + half) * 2
            at = (which * 2 + d // 16) * 16 * 16 * size + within
            block[0, at : at + size] = np.frombuffer(one.to_bytes(size, "little"), np.uint8)
        rows = kv.unpack_kv(block, kv_dtype)
        assert [tuple(index) for index in np.argwhere(rows)] == [(0, p, d), (1, p, d)]


def test_rows_are_read_from_the_blocks_that_hold_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses within the cache: [layer, K/V head, block], a stand-in for device memory."""
    save_model(tmp_path, head_dim=24)
    machine, model = machine_of(tmp_path)
    program: Program = program_of(model)
    size = kv_block_bytes(program.config)
    memory = np.random.default_rng(0).integers(0, 60, 2 * 2 * 7 * size, np.uint8)

    def copy(array: npt.NDArray[np.uint8], address: int) -> None:
        array.reshape(-1)[:] = memory[address - 1000 : address - 1000 + array.nbytes]

    monkeypatch.setattr(kv, "to_host", copy)
    rows = kv.read_kv(program, 1000, 15, 50)
    assert rows.shape == machine.kv_rows(15, 50).shape == (2, 2, 2, 35, 24)
    whole = [kv.unpack_kv(head, "fp16") for head in memory.reshape(4, 7, size)]
    for index, head in enumerate(whole):
        np.testing.assert_array_equal(rows[:, index // 2, index % 2], head[:, 15:50, :24])
    assert program.config["max_seq_padded"] == 7 * KV_BLOCK
