"""The GPU a Program is made for, as far as a schedule depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """`arch` is the compute capability ("sm_90"), `path` the kernel code path ("sm80", "sm90", "sm120").

    `sms` multiprocessors with `smem_bytes` of opt-in shared memory per block and `registers` 32-bit registers each;
    `l2_bytes` of L2, `memory_bytes` of device memory, `bandwidth` in bytes/s that a plain read stream reaches.
    """

    name: str
    arch: str
    path: str
    sms: int
    smem_bytes: int
    l2_bytes: int
    memory_bytes: int
    bandwidth: float
    registers: int = 65536

    @property
    def nvrtc_arch(self) -> str:
        """What NVRTC is asked for: the architecture-specific variant where bulk copies and friends need it."""
        return self.arch + "a" if self.path in ("sm90", "sm120") else self.arch
