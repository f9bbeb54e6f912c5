"""Random models in real shapes: logits against fp32, at the positions where splits and blocks begin and end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.gpu.shapes import CONFIGS

torch = pytest.importorskip("torch")
POSITIONS = (0, 1, 15, 16, 17, 63, 64, 65, 1000, 4095)
MAX_SEQ = 4096
BOUND = 1e-3
SEED = 7


@pytest.mark.parametrize("kv_dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("shape", CONFIGS)
def test_logits(shape: str, kv_dtype: str, tmp_path: Path) -> None:
    if kv_dtype != "fp16" and shape not in ("smollm2-135m", "llama-1b"):
        pytest.skip("the other K/V types are checked on the smaller shapes")
    errors = check_shape(shape, kv_dtype, tmp_path)
    assert max(errors.values()) < BOUND, errors


def check_shape(shape: str, kv_dtype: str, folder: Path, positions: tuple[int, ...] = POSITIONS) -> dict[int, float]:
    """Relative logits error at each position, with random K/V before it."""
    from cuda.bindings import driver as cuda

    import amk
    from amk.model.source import open_model
    from amk.runtime.cuda import CudaMachine
    from amk.runtime.cuda.driver import call
    from amk.runtime.machine import Launch
    from tests.gpu.torch_reference import DTYPES, TorchReference, set_cache

    (folder / "config.json").write_text(json.dumps(CONFIGS[shape]))
    artifact = amk.build(folder, max_seq=MAX_SEQ, kv_dtype=kv_dtype, random_weights=SEED, out=folder / "out")
    model = open_model(folder, SEED)
    torch.cuda.init()
    machine = CudaMachine(artifact.tables, artifact.cubin, model)
    reference = TorchReference(model.graph, SEED, call(cuda.cuModuleLoadData, artifact.cubin), MAX_SEQ)
    g = model.graph
    generator = torch.Generator("cuda").manual_seed(SEED)
    size = (len(g.layers), g.kv_heads, MAX_SEQ, g.head_dim)
    keys, values = (torch.randn(size, device="cuda", generator=generator).to(DTYPES[kv_dtype]) for _ in range(2))
    errors = {}
    try:
        for pos in positions:
            later = [x.clone() for x in (keys, values)]
            for x in later:
                x[:, :, pos:] = float("nan")  # rows that must not be read
            set_cache(machine, *later)
            launch = Launch(pos, [1234 + pos], 1, 0, want_logits=True)
            logits = machine.run(launch, lambda _: None).logits
            assert logits is not None
            expected = reference.step(1234 + pos, pos, keys.clone(), values.clone()).cpu().numpy()
            errors[pos] = float(np.linalg.norm(logits[0] - expected) / np.linalg.norm(expected))
            again = machine.run(launch, lambda _: None).logits
            assert again is not None and np.array_equal(again, logits), f"position {pos}: a rerun differs"
    finally:
        machine.close()
    return errors
