"""A side of a comparison: from what was submitted to a loaded machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

from amk.emit import CompiledKernel
from amk.errors import RejectedProgramError
from amk.lower import Knobs, lower
from amk.model.source import Model
from amk.runtime.machine import Machine
from autoresearch.engine import Build
from autoresearch.link import RefusedError
from autoresearch.subject import Subject
from schedule_ir import Tables, decode, encode
from schedule_ir.codec import MalformedTablesError, from_json
from schedule_ir.program import Program

Compile = Callable[[Program], CompiledKernel]


class Side:
    """A candidate or an incumbent: its tables, kernel and machine, each made when first needed."""

    def __init__(self, spec: dict[str, Any], subject: Subject, model: Model, compiled: Compile) -> None:
        self.spec, self._subject, self._model, self._compile = spec, subject, model, compiled
        self.machine: Machine | None = None

    @cached_property
    def tables(self) -> Tables:
        """Raises RefusedError where the setting does not lower, or the Program is for something else."""
        try:
            return self._submitted() if "program" in self.spec else self._lowered()
        except (RejectedProgramError, MalformedTablesError) as error:
            raise RefusedError("lower", str(error)) from error

    def _lowered(self) -> Tables:
        subject, knobs = self._subject, Knobs(**self.spec["knobs"])
        return encode(lower(self._model.graph, subject.as_target(), subject.max_seq, subject.kv_dtype, knobs))

    def _submitted(self) -> Tables:
        """The header's target goes into the source as text, so it must be the subject's to the letter."""
        tables, subject = from_json(self.spec["program"]), self._subject
        program = decode(tables)
        for name, got, due in (
            ("target", asdict(program.target), subject.target),
            ("kv_dtype", program.kv_dtype, subject.kv_dtype),
            ("max_seq", program.config.get("max_seq"), subject.max_seq),
        ):
            if got != due:
                raise MalformedTablesError(f"program has {name} {got!r}, the search is for {due!r}")
        return tables

    @cached_property
    def program(self) -> Program:
        """What the tables say."""
        return decode(self.tables)

    @cached_property
    def kernel(self) -> CompiledKernel:
        """The compiled kernel."""
        try:
            return self._compile(self.program)
        except RejectedProgramError as error:
            raise RefusedError("compile", str(error)[:2000]) from error

    @cached_property
    def build(self) -> Build:
        """Ready to run."""
        return Build(self.tables, self.program, self.kernel.cubin)

    def close(self) -> None:
        """Let go of the machine, which the other side may share; it can be made again."""
        machine, self.machine = self.machine, None
        if machine is not None:
            machine.close()
