"""A stand-in for the pipeline, so that the command line is tested without building or decoding anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from click.testing import CliRunner, Result

import amk
from amk.cli.main import cli


@dataclass(frozen=True)
class FakeToken:
    id: int
    text: str


@dataclass
class FakeSession:
    """Yields the tokens it was given; raises an exception where one stands among them."""

    script: list[FakeToken | BaseException]
    calls: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False

    def stream(self, prompt: str | list[int], **options: Any) -> Iterator[FakeToken]:
        self.calls.append({"prompt": prompt, **options})
        for item in self.script:
            if isinstance(item, BaseException):
                raise item
            yield item

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.closed = True


@dataclass(frozen=True)
class FakeArtifact:
    path: Path


Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    """Run `amk` with the given arguments, as a shell would."""

    def invoke(*args: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, args, input=stdin, prog_name="amk")

    return invoke


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    """What `amk.load` returns."""
    fake = FakeSession([FakeToken(7, " Paris"), FakeToken(9, ".")])
    monkeypatch.setitem(vars(amk), "load", lambda *_, **__: fake)
    return fake


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """The calls that reach `amk.build`."""
    calls: list[dict[str, Any]] = []

    def build(model: str, **options: Any) -> FakeArtifact:
        calls.append({"model": model, **options})
        (tmp_path / "manifest.json").write_text(json.dumps({"format": 1}))
        return FakeArtifact(tmp_path)

    monkeypatch.setitem(vars(amk), "build", build)
    return calls
