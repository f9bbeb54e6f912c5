"""The GPUs that amk can build for: a table in gpus.json, and the row for the GPU of this machine.

Sizes and bandwidths in the table are the data sheets' (memory as the driver reports it). A measured bandwidth stands
in its own column, and no code mixes the two.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from amk.device import Device, NoGpuError, first_device
from amk.errors import DeviceError, UsageError
from schedule_ir.target import Target

ESTIMATED_READ_FRACTION = 0.93
"""What a plain read stream is taken to reach of a data sheet's bandwidth where nobody has measured it."""


@dataclass(frozen=True)
class Gpu:
    """A GPU: what its data sheet says, and the bandwidth that was measured on it if one was.

    `family` names the kernels' code path for it ("sm80", "sm90", "sm120"), `arch` the machine it is compiled for.
    """

    name: str
    arch: str
    family: str
    sms: int
    smem_per_block_bytes: int
    l2_bytes: int
    memory_bytes: int
    bandwidth_gb_s: float
    measured_bandwidth_gb_s: float | None = None
    device_names: tuple[str, ...] = ()

    def as_target(self) -> Target:
        """This GPU as the lowering sees it. Without a measurement the read bandwidth is an estimate."""
        read_gb_s = self.measured_bandwidth_gb_s or self.bandwidth_gb_s * ESTIMATED_READ_FRACTION
        return Target(
            name=self.name,
            arch=self.arch,
            path=self.family,
            sms=self.sms,
            smem_bytes=self.smem_per_block_bytes,
            l2_bytes=self.l2_bytes,
            memory_bytes=self.memory_bytes,
            bandwidth=float(round(read_gb_s * 1e9)),
        )


@cache
def table() -> Mapping[str, Gpu]:
    """Every GPU of gpus.json by name, in the file's order."""
    data = _data()
    return {row["name"]: _from_row(row, data["arches"][row["arch"]]) for row in data["gpus"]}


def lookup(name: str) -> Gpu:
    """The GPU called `name`; UsageError with the nearest names if there is none."""
    gpus = table()
    key = name.strip().lower()
    if key in gpus:
        return gpus[key]
    near = difflib.get_close_matches(key, gpus, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(gpus)}"
    raise UsageError(f"no GPU called {name!r}; {hint}")


def detect() -> Gpu:
    """The row for this machine's first GPU, or a row made from its attributes if the table lacks it.

    Raises DeviceError if there is no GPU, or none that amk has code for.
    """
    return from_device(first_device())


def from_device(device: Device) -> Gpu:
    """The row whose name and SM count are the device's, else a row made from the device's attributes.

    The SM count must agree because the schedule is laid out for it: a partitioned card is not the whole card.
    """
    for gpu in table().values():
        if device.name in gpu.device_names and device.sms == gpu.sms:
            return gpu
    return _synthetic(device)


def resolve(name: str) -> Gpu:
    """The GPU that `--gpu` names; "auto" reads the device."""
    if name != "auto":
        return lookup(name)
    try:
        return detect()
    except DeviceError as error:
        reason = error.reason if isinstance(error, NoGpuError) else error
        known = ", ".join(table())
        raise DeviceError(f"--gpu auto: {reason}; or name the GPU to build for with --gpu: {known}") from error


@cache
def _data() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files("amk").joinpath("gpus.json").read_text(encoding="utf-8"))
    return data


def _from_row(row: Mapping[str, Any], arch: Mapping[str, Any]) -> Gpu:
    measured = row.get("measured_bandwidth_gb_s")
    return Gpu(
        name=row["name"],
        arch=row["arch"],
        family=arch["family"],
        sms=row["sms"],
        smem_per_block_bytes=arch["smem_per_block_kib"] << 10,
        l2_bytes=row["l2_mib"] << 20,
        memory_bytes=row["memory_mib"] << 20,
        bandwidth_gb_s=float(row["bandwidth_gb_s"]),
        measured_bandwidth_gb_s=None if measured is None else float(measured),
        device_names=tuple(row["device_names"]),
    )


def _synthetic(device: Device) -> Gpu:
    arch = _data()["arches"].get(device.arch)
    if arch is None:
        supported = ", ".join(_data()["arches"])
        raise DeviceError(f"{device.name} is {device.arch}; amk has code for {supported}")
    return Gpu(
        name=re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-"),
        arch=device.arch,
        family=arch["family"],
        sms=device.sms,
        smem_per_block_bytes=device.smem_per_block_bytes,
        l2_bytes=device.l2_bytes,
        memory_bytes=device.memory_total_bytes,
        bandwidth_gb_s=device.bandwidth_gb_s,
        device_names=(device.name,),
    )
