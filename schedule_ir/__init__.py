"""The schedule IR: what every lane of every SM does for one token, as data.

A `Program` says who (SM and lane) does what (`Task`: an op variant and its arguments), in which order, and where the
data lives (`Buffer`). `codec` turns it into the tables that the kernel, the CPU runtime and the validator all read.
"""

from schedule_ir.codec import Tables, decode, encode
from schedule_ir.program import Buffer, PackedVector, Program, Section, Space, Task, TensorTiles, Variant
from schedule_ir.registry import REGISTRY, Lane, Op
from schedule_ir.target import Target

__all__ = [
    "REGISTRY",
    "Buffer",
    "Lane",
    "Op",
    "PackedVector",
    "Program",
    "Section",
    "Space",
    "Tables",
    "Target",
    "Task",
    "TensorTiles",
    "Variant",
    "decode",
    "encode",
]
