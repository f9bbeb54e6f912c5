"""What goes wrong is named as on a GPU: hangs with their task, K/V that overflows; and what only an emulator sees."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from amk.errors import DeviceError
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.source import Model
from amk.runtime.machine import Launch
from tests.emulator.build import Edit
from tests.emulator.cases import CASES, SEED
from tests.emulator.machine import emulated, library_of
from tests.gpu.hang import BROKEN
from tests.gpu.test_failures import HANGS


@pytest.mark.parametrize("kind", HANGS)
def test_a_hang_is_reported_with_its_task(kind: str, folder: Path) -> None:
    model = CASES["llama"].model()
    program = CASES["llama"].program(model)
    library = library_of(program, folder)
    refused = pytest.raises(DeviceError, match=f"^the kernel hung: {HANGS[kind]}; load the artifact again")
    with emulated(BROKEN[kind](program), model, library) as machine, refused:
        machine.run(Launch(0, [5], 1, 0), lambda _: None)


class Spoiled:
    """A checkpoint with keys that do not fit fp16, or a norm that is no number.

    It is not a RandomCheckpoint, so its tensors are uploaded.
    """

    kind, digest = "random", ""

    def __init__(self, inner: RandomCheckpoint, spoils: str) -> None:
        self._inner, self._spoils = inner, spoils

    def names(self) -> list[str]:
        return self._inner.names()

    def shape(self, name: str) -> tuple[int, ...]:
        return self._inner.shape(name)

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        return self._inner.bf16(name) + np.uint16((25 << 7) * (self._spoils in name))

    def fp32(self, name: str) -> npt.NDArray[np.float32]:
        return self._inner.fp32(name) * np.float32("nan" if self._spoils in name else 1)


SPOILED = {
    "layers.1.self_attn.k_proj": r"K/V of layer 1, head \d at position 0 overflows fp16; build with",
    "model.norm": "a logit is not a number",
}


@pytest.mark.parametrize("spoils", SPOILED)
def test_numbers_that_are_none_are_reported(spoils: str, folder: Path) -> None:
    graph = CASES["pieces"].model().graph
    model = Model(graph, Spoiled(RandomCheckpoint(graph, SEED), spoils), Path("random"), "random", None)
    program = CASES["pieces"].program(model)
    refused = pytest.raises(DeviceError, match=SPOILED[spoils])
    with emulated(program, model, library_of(program, folder)) as machine, refused:
        machine.run(Launch(0, [1], 1, 0), lambda _: None)


WRONGS = {
    "if (threadIdx.x < 32 && threadIdx.x != 7) __syncwarp(); else if (threadIdx.x == 7) __any_sync(~0u, true);":
        "lanes of warp 0 meet in different instructions",
    "if (threadIdx.x != 7) __syncthreads(); else __syncwarp();": "all threads wait for each other",
    "if (threadIdx.x == 0) shared[kSharedBytes] = 1;": "wrote behind its shared memory",
    "mbarrier_arrive(shared_address(shared));": "no mbarrier was initialised",
    "(void)load_relaxed((const u64*)((const u8*)params.packets + 4));": "is not aligned",
}  # fmt: skip
"""What to execute first in the kernel, and the emulator's words for it."""


def with_wrongs(shared_bytes: int) -> Edit:
    """An edit after which a launch with n stop ids begins with number n of the wrongs."""
    begin = "  if (threadIdx.x == 0) init_barriers();"
    cases = " ".join(f"case {i}: {code} break;" for i, code in enumerate(WRONGS, 1))
    first = f"constexpr int kSharedBytes = {shared_bytes}; switch (params.stop_count) {{ {cases} }}"

    def edit(name: str, text: str) -> str:
        if name != "megakernel.cuh":
            return text
        assert begin in text
        return text.replace(begin, f"{first}\n{begin}")

    return edit


@pytest.mark.parametrize("number", range(len(WRONGS)))
def test_what_hardware_leaves_undefined_is_an_error(number: int, folder: Path) -> None:
    model = CASES["llama"].model()
    program = CASES["llama"].program(model)
    library = library_of(program, folder, with_wrongs(program.config["shared_bytes"]))
    launch = Launch(0, [5], 1, 0, stop_ids=tuple(range(number + 1)))
    with emulated(program, model, library) as machine, pytest.raises(DeviceError, match=list(WRONGS.values())[number]):
        machine.run(launch, lambda _: None)
