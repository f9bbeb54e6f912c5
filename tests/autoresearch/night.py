"""A night in a process of its own that kills itself: `python night.py FOLDER SCRIPT KILL_AT [LANES]`.

KILL_AT is "KIND[:PHASE]:COUNT": right after the COUNT-th such event of this process is in the journal; "before:.." just
before it would be; "" never.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from autoresearch.proposers import make_proposer
from autoresearch.study import Study
from tests.autoresearch.helpers import settings, supervisor


class Killer:
    """Counts the events of a kind, and kills this process at the one that was named."""

    def __init__(self, where: str) -> None:
        self._before = where.startswith("before:")
        what, _, count = where.removeprefix("before:").rpartition(":")
        self._kind, _, self._phase = what.partition(":")
        self._left = int(count or 0)

    def wrap(self, study: Study) -> None:
        add = study.journal.add

        def killing(kind: str, body: dict[str, Any] | None = None, **keys: Any) -> bool:
            hit = kind == self._kind and str(keys.get("phase") or "").startswith(self._phase)
            self._left -= hit
            if hit and self._left == 0 and self._before:
                os.kill(os.getpid(), signal.SIGKILL)
            done = add(kind, body, **keys)
            if hit and self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        study.journal.add = killing  # type: ignore[method-assign]


def main(folder: str, script: str, kill_at: str, lanes: str = "1") -> int:
    made = supervisor(Path(folder), Path(script), settings(trials=3), size=int(lanes))
    Killer(kill_at).wrap(made.study)
    proposer = make_proposer("coordinate")
    assert not isinstance(proposer, list)
    return made.run(proposer, resume=True).exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:5]))
