"""`python -m amk.verify.replay DIR DEVICE SEED`: the digest of an artifact's logits, from a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from amk.errors import DeviceError
from amk.progress import SILENT
from amk.runtime.load import open_artifact
from amk.verify.gates import question
from amk.verify.logits import logits_digest, run_at

TIMEOUT = 600


def replay_digest(directory: Path, device: str, seed: int) -> str:
    """The digest, computed by a fresh process. Raises DeviceError if that fails."""
    command = [sys.executable, "-m", "amk.verify.replay", str(directory), device, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0:
        raise DeviceError(f"the replay in a fresh process failed: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


def main(directory: str, device: str, seed: str) -> None:
    """Print the digest."""
    machine, _ = open_artifact(Path(directory), device, SILENT)
    ids, positions = question(device, int(seed), machine.max_seq, machine.vocab)
    print(logits_digest(run_at(machine, ids, positions)))
    machine.close()


if __name__ == "__main__":
    main(*sys.argv[1:4])
