#!/usr/bin/env python3
"""What an instruction costs that a warp has to fetch: clocks each, of straight code that is run again and again.

    benchmarks/instruction_cache.py [--kib 16,32,64] [--json F]

Code that fits the cache next to a warp's scheduler issues at once; longer code, which is run in turn and so thrown out
before it is needed again, at the pace of the cache behind it. The body is independent FFMA of 16 bytes each. With eight
warps an SM's schedulers have two each, and at best an instruction of a warp every second clock.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from amk.bench.gpu import BenchGpu, compile_source
from amk.bench.nvml import Nvml
from amk.bench.provenance import surroundings
from amk.gpus import from_device
from amk.runtime.cuda.driver import call, driver, pack_arguments, to_host

INSTRUCTION_BYTES = 16
KIB = (8, 16, 24, 32, 40, 64, 96, 128, 144, 192)
WARPS = (1, 4, 8)
WARM, TIMED = 2, 20  # repetitions of the body

KERNEL = """
extern "C" __global__ void run(long long* clocks, float x) {{
  float a0 = threadIdx.x, a1 = 1, a2 = 2, a3 = 3;
  long long begin = 0;
#pragma unroll 1
  for (int i = 0; i < {warm} + {timed}; i++) {{
    if (i == {warm}) begin = clock64();
{body}
  }}
  if (threadIdx.x % 32 == 0) clocks[blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32] = clock64() - begin;
  if (a0 + a1 + a2 + a3 == -1.f) clocks[0] = 0;
}}
"""


def source(kib: int) -> str:
    """A kernel whose loop's body has `kib` KiB of instructions."""
    count = kib * 1024 // INSTRUCTION_BYTES
    body = (f'    asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(a{i % 4}) : "f"(x));' for i in range(count))
    return KERNEL.format(warm=WARM, timed=TIMED, body="\n".join(body))


def clocks_each(gpu: BenchGpu, cubin: bytes, kib: int) -> list[float]:
    """Clocks of an instruction of a warp, median of all warps, by warps of an SM."""
    cuda, found = driver(), []
    module = call(cuda.cuModuleLoadData, cubin)
    function = call(cuda.cuModuleGetFunction, module, b"run")
    for warps in WARPS:
        taken = np.zeros((gpu.device.sms, warps), np.int64)
        address = gpu.memory.allocate(taken.nbytes)
        packed = pack_arguments([(address, ctypes.c_uint64), (0.5, ctypes.c_float)])
        call(cuda.cuLaunchKernel, function, gpu.device.sms, 1, 1, 32 * warps, 1, 1, 0, 0, packed, 0)
        to_host(taken, address)
        gpu.memory.free(address)
        found.append(median(taken.ravel().tolist()) / (TIMED * kib * 1024 / INSTRUCTION_BYTES))
    call(cuda.cuModuleUnload, module)
    return found


def main() -> None:
    """Print a row a length of code."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kib", default=KIB, type=lambda text: tuple(int(kib) for kib in text.split(",")))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with BenchGpu() as gpu, Nvml(gpu.device.index) as nvml:
        rows = measure(gpu, options.kib)
        made = surroundings(gpu.device, nvml.limits(), " ".join(sys.argv))
    print(f"{made['gpu']['name']}, driver {made['gpu']['driver']}, commit {made['commit']}")
    if options.json:
        result = {"warps": WARPS, "clocks_per_instruction": rows, "provenance": made}
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(gpu: BenchGpu, lengths: tuple[int, ...]) -> dict[int, list[float]]:
    """Clocks of an instruction of a warp, by KiB of code; a row is printed as soon as it is there."""
    arch, rows = from_device(gpu.device).as_target().nvrtc_arch, {}
    print("Clocks an instruction of a warp:\n   KiB  " + "  ".join(f"{n} warp{'s' * (n > 1)}" for n in WARPS))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cubins = pool.map(lambda kib: compile_source(source(kib), arch), lengths)
        for kib, cubin in zip(lengths, cubins, strict=True):
            rows[kib] = clocks_each(gpu, cubin, kib)
            print(f"{kib:6d}  " + "  ".join(f"{clocks:7.2f}" for clocks in rows[kib]), flush=True)
    return rows


if __name__ == "__main__":
    main()
