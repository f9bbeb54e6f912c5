"""Runs a broken program on the GPU and prints the error: python -m tests.gpu.hang MODEL KIND

In a process of its own, because a kernel that traps takes the CUDA context with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from amk.errors import DeviceError
from amk.model.source import open_model
from amk.runtime.cuda import CudaMachine
from amk.runtime.cuda import machine as cuda_machine
from amk.runtime.machine import Launch
from schedule_ir import Lane, Program, Section, Task, encode
from tests.small import small_artifact

WAIT_LIMIT = 1 << 16


def edited(
    program: Program, lane: Lane, section: Section, op: str, change: Callable[[list[Task]], list[Task]]
) -> Program:
    """The program with this lane changed of the last SM that has the op there."""
    sms = [
        sm
        for sm in range(program.sms)
        if any(program.variants[task.opcode].op == op for task in program.lanes.get((sm, lane, section), ()))
    ]
    key = (sms[-1], lane, section)
    return replace(program, lanes={**program.lanes, key: tuple(change(list(program.lanes[key])))})


def without_last(program: Program, lane: Lane, section: Section, op: str) -> Program:
    """The program without the last task of an op in a lane."""

    def change(tasks: list[Task]) -> list[Task]:
        last = max(i for i, task in enumerate(tasks) if program.variants[task.opcode].op == op)
        return tasks[:last] + tasks[last + 1 :]

    return edited(program, lane, section, op, change)


def with_wrong_tag(program: Program) -> Program:
    """The program with one layer result published under a tag that nobody waits for."""

    def change(tasks: list[Task]) -> list[Task]:
        first = next(i for i, task in enumerate(tasks) if program.variants[task.opcode].op == "publish")
        dst, phase, *rest = tasks[first].args
        tasks[first] = replace(tasks[first], args=(dst, phase + 1, *rest))
        return tasks

    return edited(program, Lane.EPILOGUE, Section.BODY, "publish", change)


BROKEN: dict[str, Callable[[Program], Program]] = {
    "dropped publish": lambda p: without_last(p, Lane.EPILOGUE, Section.HEAD, "publish_best"),
    "dropped copy": lambda p: without_last(p, Lane.STREAM, Section.HEAD, "copy_tape"),
    "wrong tag": with_wrong_tag,
}


def main(model: Path, kind: str) -> None:
    """Print the error of the broken program after the tokens of the sound one."""
    artifact = small_artifact(model, model.parent / "artifact", gpu="auto")
    cuda_machine.WAIT_LIMIT = WAIT_LIMIT
    launch = Launch(0, [5], 1, 0)
    sound = CudaMachine(artifact.tables, artifact.cubin, open_model(model))
    print(sound.run(launch, lambda _: None).tokens)
    sound.close()
    broken = CudaMachine(encode(BROKEN[kind](artifact.program)), artifact.cubin, open_model(model))
    try:
        broken.run(launch, lambda _: None)
    except DeviceError as error:
        print(error)
    broken.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
