"""The CPU runtime: executes decoded device tables in NumPy, from the packed weight tapes."""

from amk.runtime.cpu.machine import CpuMachine

__all__ = ["CpuMachine"]
