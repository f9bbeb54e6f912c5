"""The correctness gates: what a kernel has to pass before its latency means anything.

`run_gates` runs them on a rig (a Program, its kernel and a model, on the GPU or the CPU runtime); `amk verify` prints
the results of an artifact's.
"""

from amk.verify.gates import GATES, GateResult, Level, run_gates
from amk.verify.rig import CpuRig, Rig

__all__ = ["GATES", "CpuRig", "GateResult", "Level", "Rig", "run_gates"]
