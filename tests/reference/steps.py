"""One step of a machine against the fp32 reference, whatever type the K/V cache has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from amk.runtime.machine import Machine
from tests.reference.rounding import rounding_error

if TYPE_CHECKING:
    import torch

    from amk.bench.reference import TorchReference

BOUND = 1e-4
"""What both errors of a step may be at most. 30 layers on the CPU runtime: 2e-5 with any K/V type."""


@dataclass(frozen=True)
class StepError:
    """`logits`: relative (2-norm), given the rows that amk cached; `row`: see `rounding_error`."""

    logits: float
    row: float

    @property
    def close(self) -> bool:
        return self.logits < BOUND and self.row < BOUND

    def __str__(self) -> str:
        return f"logits {self.logits:.1e}, row {self.row:.1e}"


def step_error(
    machine: Machine,
    reference: TorchReference,
    kv_dtype: str,
    step: tuple[int, int],
    logits: npt.NDArray[np.float32],
    cache: tuple[torch.Tensor, torch.Tensor],
) -> StepError:
    """The error of a `step` (token, position) that gave `logits`.

    `cache` holds K and V [layers, kv_heads, positions, head_dim or more] as the machine has them before the position,
    and gets the row that the machine appended.
    """
    import torch

    (token, pos), (keys, values) = step, cache
    row = machine.kv_rows(pos, pos + 1)[:, :, :, 0]
    for own, rows in zip(cache, row, strict=True):
        own[:, :, pos, : row.shape[-1]] = torch.from_numpy(rows).to(own.device)
    expected, exact = reference.step_over(token, pos, keys, values)
    difference = torch.from_numpy(logits).to(expected.device) - expected
    error = float(difference.norm() / expected.norm())
    return StepError(error, rounding_error(row, exact.cpu().numpy(), kv_dtype))
