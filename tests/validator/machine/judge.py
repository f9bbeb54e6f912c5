"""The verdict on one run: a hang, an access outside, or results that are not the model's."""

from __future__ import annotations

from typing import Any

from schedule_ir import Tables, decode
from tests.validator.machine.gpu import Machine
from tests.validator.machine.interleavings import Prefer, run
from tests.validator.machine.reference import history, reference
from tests.validator.machine.state import BadProgramError, Setup


def judge(tables: Tables, graph: Any, setup: Setup, prefer: Prefer) -> str | None:
    """What goes wrong in one run under this interleaving; None if nothing does."""
    try:
        program = decode(tables)
        prompt: list[Any] = [
            None if step and setup.heads[step - 1] else ("given", step) for step in range(len(setup.heads))
        ]
        machine = Machine(program, setup, prompt)
        machine.kv = history(graph, program.config["max_seq_padded"], setup.start)
        run(machine, prefer)
        logits, kv = reference(graph, program, setup, prompt)
    except BadProgramError as error:
        return str(error)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    for step, expected in logits.items():
        if [machine.logits.get(step, {}).get(row) for row in range(len(expected))] != expected:
            return f"wrong logits of token {step}"
    return None if machine.kv == kv else "wrong K/V rows"
