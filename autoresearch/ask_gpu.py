"""What GPU is there, asked by a process of its own: a driver that hangs must not take the supervisor with it.

`python -m autoresearch.ask_gpu` prints the first GPU's attributes, or why there is none, as one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

from amk.device import Device, first_device
from amk.errors import DeviceError
from amk.gpus import Gpu, from_device, lookup

TIMEOUT = 90.0


def first_gpu(timeout: float = TIMEOUT) -> Gpu:
    """The row of the first GPU. Raises DeviceError with the reason where there is none, or no answer."""
    command = [sys.executable, "-m", "autoresearch.ask_gpu"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise DeviceError(f"the GPU driver gave no answer within {timeout:g} s; check it with nvidia-smi") from None
    except ValueError:
        raise DeviceError(
            f"asking for the GPU failed: {done.stderr.strip()[-300:]}; check it with amk doctor"
        ) from None
    if "error" in answer:
        raise DeviceError(answer["error"])
    return from_device(Device(**answer))


def find_gpu(name: str) -> Gpu:
    """The GPU that `--gpu` names; "auto" asks the driver."""
    if name != "auto":
        return lookup(name)
    try:
        return first_gpu()
    except DeviceError as error:
        raise DeviceError(f"--gpu auto: {error}; or name the GPU with --gpu, such as --gpu h200") from error


def main() -> None:
    """Print the answer."""
    try:
        print(json.dumps(asdict(first_device())))
    except DeviceError as error:
        print(json.dumps({"error": getattr(error, "reason", str(error))}))


if __name__ == "__main__":
    main()
