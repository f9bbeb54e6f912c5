"""The CUDA machine: loads the cubin, repacks the weights on the GPU, launches, streams tokens."""

from amk.runtime.cuda.machine import CudaMachine

__all__ = ["CudaMachine"]
