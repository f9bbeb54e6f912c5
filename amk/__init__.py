"""amk: a Llama-family checkpoint as one persistent cooperative CUDA kernel.

`amk.build` makes an artifact from a checkpoint, `amk.load` opens one for decoding. Both arrive late (PEP 562), so
that `import amk` costs nothing and works on a machine without a GPU or a driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amk.pipeline import build as build
    from amk.runtime.session import Generation as Generation
    from amk.runtime.session import Session as Session
    from amk.runtime.session import Token as Token
    from amk.runtime.session import load as load

__version__ = "0.1.0"
__all__ = ["build", "load", "Session", "Generation", "Token", "__version__"]

_HOMES = {
    "build": "amk.pipeline",
    "load": "amk.runtime.session",
    "Session": "amk.runtime.session",
    "Generation": "amk.runtime.session",
    "Token": "amk.runtime.session",
}


def __getattr__(name: str) -> object:
    """Import a public name from the module it lives in, when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'amk' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """What `dir(amk)` and completion show, the late names included."""
    return sorted(__all__)
