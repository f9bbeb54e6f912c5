"""GGUF files of the families against the models that they were written from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from amk.errors import UnsupportedModelError
from amk.model.source import open_model
from tests.families.cases import CASES, WINDOW, Case
from tests.families.gguf_files import save_gguf
from tests.families.models import reference, save
from tests.runtime.models import relative_error, session_of, tokens_of

IDS = tokens_of(70, 503)
GEMMA = {"attention__sliding_window": WINDOW}
FILES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen2": ("qwen2", {}, {"head_dim": False}),
    "qwen2-yarn": ("qwen2", {}, {"rope__scaling__factor": 4.0, "rope__scaling__original_context_length": 64}),
    "qwen3": ("qwen3", {}, {}),
    "phi3": ("phi3", {}, {"head_dim": False, "attention__sliding_window": WINDOW}),
    "smollm3": ("smollm3", {}, {}),
    "granite": (
        "granite", {},
        {
            "head_dim": False, "attention__scale": 0.15, "embedding_scale": 12.0, "residual_scale": 0.22,
            "logit_scale": 8.0,
        },
    ),
    "olmo2": ("olmo2", {}, {"head_dim": False}),
    "gemma": ("gemma", {"tie_word_embeddings": True}, {}),
    "gemma2": (
        "gemma2", {"tie_word_embeddings": True, "query_pre_attn_scalar": 16},
        GEMMA | {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
    ),
    "gemma3": (
        "gemma3", {"layer_types": None, "num_hidden_layers": 7, "query_pre_attn_scalar": 16},
        GEMMA | {"rope__scaling__factor": 4.0},
    ),
}  # fmt: skip


def saved(case: str, folder: Path) -> tuple[Path, Any]:
    """(the file, the model)."""
    arch, changes, settings = FILES[case]
    wanted: Case = replace(CASES[case], changes=CASES[case].changes | changes)
    model = save(wanted, folder / "hf")
    path = folder / f"{case}.gguf"
    save_gguf(path, arch, model, **settings)
    return path, model


@pytest.mark.parametrize("case", FILES)
def test_logits_are_the_models(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "factor" in str(FILES[case][2]):
        kind = "yarn" if "yarn" in case else "linear"
        add = gguf.GGUFWriter.add_rope_freq_base

        def with_kind(writer: Any, base: float) -> None:
            add(writer, base)
            writer.add_rope_scaling_type(gguf.RopeScalingType(kind))

        monkeypatch.setattr(gguf.GGUFWriter, "add_rope_freq_base", with_kind)
    path, model = saved(case, tmp_path)
    with session_of(path, "fp32", 128) as session:
        assert relative_error(session.logits(IDS), reference(model, IDS)) < 1e-4


def test_norms_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    path, _ = saved("gemma", tmp_path)
    from_file, from_folder = open_model(path), open_model(tmp_path / "hf")
    for name in ("model.norm.weight", "model.layers.2.input_layernorm.weight"):
        np.testing.assert_allclose(from_file.checkpoint.fp32(name), from_folder.checkpoint.fp32(name), rtol=1e-6)


def test_longrope_from_its_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The converter writes the divisors as tensors, and the factor of cos and sin."""
    rope = CASES["phi3-longrope"].changes["rope_parameters"]
    write = gguf.GGUFWriter.write_header_to_file

    def with_divisors(writer: Any, *args: Any) -> None:
        for name in ("long", "short"):
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(rope[f"{name}_factor"], np.float32))
        write(writer, *args)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_divisors)
    model = save(CASES["phi3-longrope"], tmp_path / "hf")
    path = tmp_path / "long.gguf"
    settings = {"rope__dimension_count": 12, "rope__scaling__original_context_length": 64}
    attention = open_model(tmp_path / "hf").graph.rope.attention_factor
    save_gguf(path, "phi3", model, head_dim=False, rope__scaling__attn_factor=attention, **settings)
    with session_of(path, "fp32", 128) as session:
        for length in (40, 70):
            assert relative_error(session.logits(IDS[:length]), reference(model, IDS[:length])) < 1e-4


def test_setting_of_another_architecture_is_refused(tmp_path: Path) -> None:
    model = save(CASES["qwen2"], tmp_path / "hf")
    save_gguf(tmp_path / "x.gguf", "qwen2", model, head_dim=False, logit_scale=2.0)
    with pytest.raises(UnsupportedModelError, match=r"qwen2\.logit_scale = 2\.0 is not supported"):
        open_model(tmp_path / "x.gguf")
