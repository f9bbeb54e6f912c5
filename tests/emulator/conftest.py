"""Where the kernels that these tests compile are kept, so that each is compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.build import why_not


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    return tmp_path_factory.mktemp("emulator")
