"""Who proposes: built-in searches, and agents behind a process or an endpoint."""

from __future__ import annotations

import importlib.util
import shlex
import shutil
from collections.abc import Callable

from amk.errors import UsageError
from autoresearch.proposers.base import Proposal, Proposer, View
from autoresearch.proposers.mcts import TreeSearch
from autoresearch.proposers.mixed import Mixed
from autoresearch.proposers.optuna_sampler import OptunaSampler
from autoresearch.proposers.simple import Coordinate, Evolution, RandomRestarts

__all__ = ["NAMES", "Proposal", "Proposer", "View", "make_proposer"]


def _mixed() -> Proposer:
    """The built-in searches in turn; Optuna only where it is installed."""
    members: list[Proposer] = [Coordinate(), TreeSearch(), Coordinate(), Evolution(), RandomRestarts()]
    if importlib.util.find_spec("optuna") is not None:
        members.insert(3, OptunaSampler())
    return Mixed(members)


NAMES: dict[str, Callable[[], Proposer]] = {
    "mixed": _mixed,
    "random": RandomRestarts,
    "coordinate": Coordinate,
    "evolution": Evolution,
    "mcts": TreeSearch,
    "optuna": OptunaSampler,
}


def make_proposer(name: str) -> Proposer | list[str]:
    """The built-in proposer of that name, or the command line of an agent process. Raises UsageError for neither."""
    if name in NAMES:
        return NAMES[name]()
    command = shlex.split(name)
    if not command or shutil.which(command[0]) is None:
        raise UsageError(f"--proposer {name!r}: not one of {', '.join(NAMES)}, llm, and no command of that name either")
    return command
