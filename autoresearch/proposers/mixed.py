"""Several proposers in turn; first what won elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch.history import Trial
from autoresearch.proposers.base import Proposal, Proposer, View, knobs


class Mixed:
    """Takes turns by trial number. A proposer that has nothing to say leaves its turn to the next."""

    name = "mixed"

    def __init__(self, members: Sequence[Proposer]) -> None:
        self._members = members

    def propose(self, view: View) -> Proposal | None:
        """A warm start that nobody tried here, or the proposal of the member whose turn it is."""
        tried = view.tried()
        for setting in view.warm:
            if view.values(setting) not in tried:
                return Proposal(knobs(setting), view.incumbent[0], "warm start: kept elsewhere")
        turn = view.history.next_trial + view.attempt
        for offset in range(len(self._members)):
            member = self._members[(turn + offset) % len(self._members)]
            proposal = member.propose(view)
            if proposal is not None:
                return Proposal(proposal.spec, proposal.parent, proposal.why or member.name)
        return None

    def learn(self, trial: Trial) -> None:
        """Pass it on."""
        for member in self._members:
            member.learn(trial)

    def close(self) -> None:
        """Pass it on."""
        for member in self._members:
            member.close()
