"""The torch sides of the benchmark, on the CPU: the fp32 reference and the baseline's decode step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amk.model.source import open_model

torch = pytest.importorskip("torch")

from amk.bench.reference import TorchReference, pack_kv  # noqa: E402
from amk.bench.torch_decode import Decoder, Parts, Shape  # noqa: E402
from tests.runtime.models import reference_logits, relative_error, save_model, tokens_of  # noqa: E402


def test_reference_agrees_with_transformers(tmp_path: Path) -> None:
    hugging_face = save_model(tmp_path, attention_bias=True)
    ids = tokens_of(9)
    reference = TorchReference(open_model(tmp_path), 100, device="cpu")
    keys, values = (torch.full((2, 2, 16, 16), float("nan")) for _ in range(2))
    logits = [reference.step(token, pos, keys, values).numpy() for pos, token in enumerate(ids)]
    assert relative_error(np.stack(logits), reference_logits(hugging_face, ids)) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_packed_blocks(dtype: torch.dtype) -> None:
    """Positions 16 b .. 16 b + 15 are one block: K and then V, each in 16-byte pieces by thread."""
    keys, values = (torch.arange(2 * 48 * 32).view(2, 48, 32).to(dtype) + i for i in range(2))
    packed = pack_kv(keys, values)
    assert packed.shape == (2, 3, 2, 16 * 32)
    for head, block in np.ndindex(2, 3):
        rows = slice(16 * block, 16 * block + 16)
        assert sorted(packed[head, block, 0].tolist()) == sorted(keys[head, rows].flatten().tolist())
        assert sorted(packed[head, block, 1].tolist()) == sorted(values[head, rows].flatten().tolist())
    # thread 5 holds, of K, position 5 / 4 and dims (5 % 4) * 2 + {0, 1, 8, 9}, then the same of position + 8
    first = packed[0, 0, 0, :256]
    expected = [keys[0, p, d] for p in (1, 9) for d in (2, 3, 10, 11)]
    pieces = first.view(2, 32, 4)[:, 5].flatten() if dtype is torch.float32 else first.view(32, 8)[5]
    assert pieces.tolist() == [float(value) for value in expected]


@pytest.fixture
def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder(Shape(64, 128, 3, 4, 2, 16, 100, tied=False), rows=40, device="cpu")


def test_decode_step_appends_one_row_and_picks_a_token(decoder: Decoder) -> None:
    before = decoder.cache.clone()
    parts = Parts(decoder.first, decoder.middle, decoder.last)
    with torch.inference_mode():
        token = decoder.step(parts, 20, grouped=False)
        assert decoder.step(parts, 20, grouped=True) == token
    assert 0 <= int(token) < 100
    changed = (decoder.cache != before).any(-1).nonzero()
    assert {int(pos) for pos in changed[:, 3]} == {20}
    assert len(changed) == 2 * 3 * 2
