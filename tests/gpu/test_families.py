"""The small random model of every family on the GPU: logits against transformers in fp32, tokens against the CPU.

The CPU's tokens are compared with transformers' in tests/families. transformers 5.17 and 5.24 themselves differ in the
tokens of phi3-longrope where it outgrows its first training; the CPU's are those of 5.24.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import amk
from tests.families.cases import CASES
from tests.families.models import reference, save
from tests.runtime.models import relative_error, session_of, tokens_of

PROMPT, NEW, MAX_SEQ = 70, 40, 128


@pytest.mark.parametrize("case", CASES)
def test_family(case: str, tmp_path: Path) -> None:
    model = save(CASES[case], tmp_path / "model")
    ids = tokens_of(PROMPT, 503)
    amk.build(tmp_path / "model", max_seq=MAX_SEQ, kv_dtype="fp32", out=tmp_path / "out")
    with amk.load(tmp_path / "out", device="cuda") as session:
        error = relative_error(session.logits(ids), reference(model, ids))
        prompt = ids[: PROMPT - 14]  # some families change their angles at position 64
        tokens = session.generate(prompt, NEW).token_ids
    with session_of(tmp_path / "model", "fp32", MAX_SEQ) as cpu:
        expected = cpu.generate(prompt, NEW).token_ids
    print(case, f"{error:.1e}")
    assert error < 1e-4
    assert tokens == expected
