"""An independent judge of schedules: a small machine that executes device tables under interleavings of its choice.

Shares no code with the validator and does not use the registry's access rules: what an op does is written down here
again, after the kernel. Values are provenance (hashes of what they were computed from), so that the logits of a run can
be compared with a straightforward evaluation of the model graph. Two warps per compute lane drift apart except at block
barriers; bulk copies read memory at a moment of their own; polls succeed only while all their packets are there.
"""

from tests.validator.machine.gpu import Machine
from tests.validator.machine.interleavings import by_priority, explore, randomly, run
from tests.validator.machine.judge import judge
from tests.validator.machine.reference import history, reference
from tests.validator.machine.state import BadProgramError, Setup

__all__ = [
    "BadProgramError",
    "Machine",
    "Setup",
    "by_priority",
    "explore",
    "history",
    "judge",
    "randomly",
    "reference",
    "run",
]
