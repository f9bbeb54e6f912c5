"""The CPU machine's logits are those of transformers in fp32 on the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.models import reference_logits, relative_error, save_model, session_of, tokens_of

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "gqa-2": {},
    "gqa-1 head-8": {"num_attention_heads": 9, "num_key_value_heads": 9, "head_dim": 8},
    "gqa-3 head-64 tied": {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 64,
                           "tie_word_embeddings": True},
    "gqa-4 biases": {"num_attention_heads": 8, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True},
    "gqa-8 head-80 llama3": {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 80,
                             "rope_parameters": LLAMA3},
    "gqa-12: two query blocks": {"num_attention_heads": 24, "num_key_value_heads": 2, "head_dim": 8},
    "one k-step, one kv head": {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
                                "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 33},
    "split down projection": {"intermediate_size": 70_000, "hidden_size": 32, "num_hidden_layers": 1},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_logits_are_the_references(tmp_path: Path, case: str) -> None:
    reference = save_model(tmp_path, **CASES[case])
    ids = tokens_of(70, CASES[case].get("vocab_size", 1003))
    expected = reference_logits(reference, ids)
    # A random model amplifies the rounding of fp16 K/V more than a trained one does (4e-4 there).
    for kv_dtype, tolerance in (("fp32", 5e-5), ("fp16", 1.5e-3)):
        with session_of(tmp_path, kv_dtype) as session:
            assert relative_error(session.logits(ids), expected) < tolerance


def test_several_splits_are_active(tmp_path: Path) -> None:
    # Otherwise the cases above would prove nothing of partial results and their merge.
    from amk.runtime.cpu.attention import active_splits

    save_model(tmp_path)
    session = session_of(tmp_path)
    program = session.machine._program  # type: ignore[attr-defined]
    assert [len(active_splits(program, pos)) for pos in (0, 1, 16, 17, 32, 33, 69)] == [1, 1, 1, 2, 2, 3, 5]
    assert active_splits(program, 40) == [(0, 16), (16, 32), (32, 40)]


def test_bf16_kv_is_coarser_and_close(tmp_path: Path) -> None:
    reference = save_model(tmp_path)
    ids = tokens_of(40)
    error = relative_error(session_of(tmp_path, "bf16").logits(ids), reference_logits(reference, ids))
    assert 1e-4 < error < 2e-2


def test_dynamic_rope_depends_on_the_prompt(tmp_path: Path) -> None:
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    reference = save_model(tmp_path, max_position_embeddings=32, rope_parameters=dynamic)
    with session_of(tmp_path, "fp32") as session:
        # transformers forgets the long prompt's angles only at a short one, so that is in between.
        for length in (20, 60, 20, 45):
            ids = tokens_of(length)
            assert relative_error(session.logits(ids), reference_logits(reference, ids)) < 5e-5


def test_runs_are_bit_identical(tmp_path: Path) -> None:
    save_model(tmp_path)
    ids = tokens_of(40)
    first, second = session_of(tmp_path).logits(ids), session_of(tmp_path).logits(ids)
    assert np.array_equal(first, second)
