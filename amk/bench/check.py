"""Child process: logits of an artifact against an fp32 torch reference at each position. `python -m amk.bench.check`

Request: {"artifact", "positions", "steps"}; a row per position: {"pos", "relative_error", "argmax_equal"}.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from amk.artifact import read_artifact
from amk.bench.child import emit, read_request
from amk.progress import SILENT
from amk.runtime.cuda import CudaMachine
from amk.runtime.cuda.driver import call, driver
from amk.runtime.load import open_checkpoint
from amk.runtime.machine import Launch

if TYPE_CHECKING:
    import torch

    from amk.bench.reference import TorchReference

MARGIN = 1e-2
"""Two largest reference logits closer than this may change places."""

_SEED = 7


def main() -> None:
    """Check the positions from the last to the first, so that the rows after each hold NaN when it is run."""
    import torch

    from amk.bench.reference import TorchReference, random_cache

    request = read_request()
    artifact = read_artifact(Path(request["artifact"]))
    model = open_checkpoint(artifact, SILENT)
    torch.cuda.init()
    machine = CudaMachine(artifact.tables, artifact.cubin, model)
    try:
        module = call(driver().cuModuleLoadData, artifact.cubin)
        reference = TorchReference(model, machine.max_seq, module)
        keys, values = random_cache(machine, _SEED)
        for pos in sorted(request["positions"], reverse=True):
            check_position(machine, reference, keys, values, pos, request["steps"])
    finally:
        machine.close()


def check_position(
    machine: CudaMachine, reference: TorchReference, keys: torch.Tensor, values: torch.Tensor, pos: int, steps: int
) -> None:
    """Emit the worst of `steps` tokens from `pos`. Rows that must not be read are poisoned."""
    from amk.bench.reference import relative_error, set_cache

    for cache in (keys, values):
        cache[:, :, pos:] = float("nan")
    set_cache(machine, keys, values)
    given = [(1234 + pos + 17 * i) % machine.vocab for i in range(steps)]
    logits = machine.run(Launch(pos, given, steps, 0, want_logits=True), lambda _: None).logits
    assert logits is not None
    errors, equal = [], True
    for i, token in enumerate(given):
        expected = reference.step(token, pos + i, keys, values)
        errors.append(relative_error(logits[i], expected))
        top = expected.topk(2).values
        equal &= bool(top[0] - top[1] < MARGIN) or int(np.argmax(logits[i])) == int(expected.argmax())
    emit(pos=pos, relative_error=max(errors), argmax_equal=equal)


if __name__ == "__main__":
    main()
