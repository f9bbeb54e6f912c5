"""Ways to break a schedule, applied to the device tables of real lowerings: by what is broken, in `kinds`.

A mutation returns the broken tables, or None where it does not apply. `certain` ones are wrong by construction and must
be rejected; of the others the oracle says whether an accepted one is wrong.
"""

from tests.validator.kinds import appends, arguments, chains, doubled, encoding, meaning, missing, order, sizes
from tests.validator.kinds.kind import KINDS, Kind, mutate
from tests.validator.kinds.sheet import Sheet

__all__ = ["KINDS", "Kind", "Sheet", "mutate"]

MODULES = (missing, doubled, arguments, order, sizes, meaning, encoding, chains, appends)
"""Importing them registers their kinds, in the order of the names above."""
