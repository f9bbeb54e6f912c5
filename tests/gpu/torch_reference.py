"""An fp32 reference of the decode step on the GPU, for shapes too large for the CPU, and K/V in the kernel's layout."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from cuda.bindings import driver as cuda

from amk.model.graph import Linear, ModelGraph, TensorRef
from amk.model.random_weights import random_fp32, random_key, random_step
from amk.model.rope import rope_table
from amk.runtime.cuda.driver import call, pack_arguments
from amk.runtime.cuda.machine import CudaMachine

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


class TorchReference:
    """Weights of a seeded random model in torch (bf16), and one fp32 token step over a given K/V cache."""

    def __init__(self, graph: ModelGraph, seed: int, module: Any, max_seq: int) -> None:
        self.graph = graph
        self._kernel = call(cuda.cuModuleGetFunction, module, b"amk_random")
        self._seed = seed
        self.weights = {ref.name: self._make(ref) for ref in graph.tensors()}
        self.rope = torch.from_numpy(rope_table(graph.rope, max_seq)).cuda()

    def _make(self, ref: TensorRef) -> torch.Tensor:
        if len(ref.shape) == 1:
            return torch.from_numpy(random_fp32(self._seed, ref)).cuda()
        out = torch.empty(ref.shape, dtype=torch.bfloat16, device="cuda")
        arguments = pack_arguments([
            (out.data_ptr(), ctypes.c_uint64),
            (math.prod(ref.shape), ctypes.c_uint64),
            (random_key(self._seed, ref.name), ctypes.c_uint32),
            (float(random_step(ref)), ctypes.c_float),
        ])
        call(cuda.cuLaunchKernel, self._kernel, 1056, 1, 1, 256, 1, 1, 0, 0, arguments, 0)
        torch.cuda.synchronize()
        return out

    def _linear(self, linear: Linear, x: torch.Tensor) -> torch.Tensor:
        y = self.weights[linear.weight.name].float() @ x
        return y if linear.bias is None else y + self.weights[linear.bias.name]

    def _norm(self, x: torch.Tensor, ref: TensorRef) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean() + self.graph.norm_eps) * self.weights[ref.name]

    def _rotate(self, x: torch.Tensor, pos: int) -> torch.Tensor:
        cos, sin = self.rope[pos, :, 0], self.rope[pos, :, 1]
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def step(self, token: int, pos: int, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Logits at `pos`; keys and values [layers, kv_heads, max_seq, head_dim] in the K/V dtype get row `pos`."""
        g = self.graph
        h = self.weights[g.embed.name][token].float()
        for index, layer in enumerate(g.layers):
            x = self._norm(h, layer.attn_norm)
            q = self._rotate(self._linear(layer.q, x).view(g.heads, g.head_dim), pos)
            keys[index, :, pos] = self._rotate(self._linear(layer.k, x).view(g.kv_heads, g.head_dim), pos)
            values[index, :, pos] = self._linear(layer.v, x).view(g.kv_heads, g.head_dim)
            k = keys[index, :, : pos + 1].float().repeat_interleave(g.group, 0)
            v = values[index, :, : pos + 1].float().repeat_interleave(g.group, 0)
            weights = torch.softmax((k @ q[:, :, None])[..., 0] * g.attention_scale, -1)
            h = h + self._linear(layer.o, (weights[:, None] @ v)[:, 0].reshape(-1))
            x = self._norm(h, layer.mlp_norm)
            gate = torch.nn.functional.silu(self._linear(layer.gate, x))
            h = h + self._linear(layer.down, gate * self._linear(layer.up, x))
        return self._linear(g.head, self._norm(h, g.final_norm))


def set_cache(machine: CudaMachine, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Write K/V [layers, kv_heads, max_seq padded to 16, head_dim padded to 16] into the machine's cache."""
    dtype = DTYPES[machine.program.kv_dtype]
    layers, heads, rows, dim = keys.shape
    blocks, steps = rows // 16, dim // 16
    k = keys.to(dtype).view(layers, heads, blocks, 2, 8, steps, 2, 4, 2).permute(0, 1, 2, 5, 4, 7, 3, 6, 8)
    v = values.to(dtype).view(layers, heads, blocks, 2, 4, 2, steps, 2, 8).permute(0, 1, 2, 6, 8, 4, 7, 3, 5)
    parts = [x.reshape(layers, heads, blocks, steps, 32, 8) for x in (k, v)]
    if dtype is torch.float32:  # two 16-byte planes per thread
        parts = [x.view(layers, heads, blocks, steps, 32, 2, 4).transpose(4, 5) for x in parts]
    packed = torch.stack([x.reshape(layers, heads, blocks, -1) for x in parts], 3).contiguous()
    torch.cuda.synchronize()
    call(cuda.cuMemcpyDtoD, machine.kv_address, packed.data_ptr(), packed.numel() * packed.element_size())
