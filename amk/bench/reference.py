"""An fp32 reference of the decode step in torch on the GPU, and K/V in the kernel's layout. Needs torch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from amk.model.graph import Layer, Linear, TensorRef
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.random_weights import random_key, random_step
from amk.model.rope import rope_tables
from amk.model.source import Model
from amk.runtime.cuda.driver import call, driver, pack_arguments
from amk.runtime.cuda.kv import KEY_ORDER, KEY_SIZES, THREADS, VALUE_ORDER, VALUE_SIZES
from amk.runtime.cuda.machine import CudaMachine
from schedule_ir.layout import KV_BLOCK

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
_ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
}


class TorchReference:
    """A model's weights in torch (bf16), and one fp32 token step over a given K/V cache.

    `module` is the loaded module of the artifact: it holds the kernel that makes random weights where they are needed
    (without it they are made on the host). Matrices are widened to fp32 one at a time.
    """

    def __init__(self, model: Model, max_seq: int, module: Any = None, device: str = "cuda") -> None:
        self.graph, self._checkpoint, self._device = model.graph, model.checkpoint, device
        self._random = call(driver().cuModuleGetFunction, module, b"amk_random") if module is not None else None
        self.weights = {ref.name: self._make(ref) for ref in model.graph.tensors()}
        self.ropes = torch.from_numpy(rope_tables(model.graph.ropes, max_seq)).to(device)

    def step(self, token: int, pos: int, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """fp32 logits at `pos`; keys and values [layers, kv_heads, >= pos + 1, >= head_dim] get row `pos`."""
        d = self.graph.head_dim

        def append(layer: int, row: torch.Tensor) -> None:
            keys[layer, :, pos, :d], values[layer, :, pos, :d] = row[0], row[1]

        return self._step(token, pos, keys, values, append)

    def step_over(
        self, token: int, pos: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(fp32 logits at `pos` over a cache that has row `pos` already, the row that the model computes itself).

        The latter is fp32 [2, layers, kv_heads, head_dim], K and V, not rounded; attention sees the cached one.
        """
        rows: list[torch.Tensor] = []
        logits = self._step(token, pos, keys, values, lambda _, row: rows.append(row))
        return logits, torch.stack(rows, 1)

    def _step(
        self, token: int, pos: int, keys: torch.Tensor, values: torch.Tensor, take: Callable[[int, torch.Tensor], None]
    ) -> torch.Tensor:
        """fp32 logits; `take` gets each layer's new row [2, kv_heads, head_dim] before attention reads the cache."""
        g = self.graph
        h = self.weights[g.embed.name][token].float() * g.embed_scale
        for index, layer in enumerate(g.layers):
            x = self._norm(h, layer.attn_norm)
            take(index, self._row(layer, x, pos))
            x = self._attention(layer, x, pos, keys[index], values[index])
            h = h + g.residual_multiplier * self._norm(self._linear(layer.o, x), layer.post_attn_norm)
            x = self._norm(h, layer.mlp_norm)
            gate = _ACTIVATIONS[g.activation](self._linear(layer.gate, x))
            x = self._linear(layer.down, gate * self._linear(layer.up, x))
            h = h + g.residual_multiplier * self._norm(x, layer.post_mlp_norm)
        return _capped(self._linear(g.head, self._norm(h, g.final_norm)) / g.logits_divisor, g.logits_cap)

    def _row(self, layer: Layer, x: torch.Tensor, pos: int) -> torch.Tensor:
        """[2, kv_heads, head_dim]: K and V of position `pos`."""
        key = self._rotate(self._heads(layer.k, layer.k_norm, x), pos, layer.rope)
        return torch.stack([key, self._heads(layer.v, None, x)])

    def _attention(
        self, layer: Layer, x: torch.Tensor, pos: int, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        g, d = self.graph, self.graph.head_dim
        q = self._rotate(self._heads(layer.q, layer.q_norm, x), pos, layer.rope)
        seen = slice(max(0, pos + 1 - layer.window) if layer.window else 0, pos + 1)
        k = keys[:, seen, :d].float()
        scores = _capped(q.view(g.kv_heads, g.group, d) @ k.transpose(1, 2) * g.attention_scale, g.score_cap)
        return (torch.softmax(scores, -1) @ values[:, seen, :d].float()).reshape(-1)

    def _heads(self, linear: Linear, norm: TensorRef | None, x: torch.Tensor) -> torch.Tensor:
        """[heads, head_dim], normed over each head or over all of them, as the weight's size says."""
        y, d = self._linear(linear, x), self.graph.head_dim
        if norm is None or norm.shape[0] != d:
            return self._norm(y, norm).view(-1, d)
        return self._norm(y.view(-1, d), norm)

    def _make(self, ref: TensorRef) -> torch.Tensor:
        if len(ref.shape) == 1:
            return torch.from_numpy(self._checkpoint.fp32(ref.name)).to(self._device)
        if self._random is not None and isinstance(self._checkpoint, RandomCheckpoint):
            return self._make_random(ref, self._checkpoint.seed)
        return torch.from_numpy(self._checkpoint.bf16(ref.name)).view(torch.bfloat16).to(self._device)

    def _make_random(self, ref: TensorRef, seed: int) -> torch.Tensor:
        out = torch.empty(ref.shape, dtype=torch.bfloat16, device=self._device)
        arguments = pack_arguments(
            [
                (out.data_ptr(), ctypes.c_uint64),
                (math.prod(ref.shape), ctypes.c_uint64),
                (random_key(seed, ref.name), ctypes.c_uint32),
                (float(random_step(ref)), ctypes.c_float),
            ]
        )
        call(driver().cuLaunchKernel, self._random, 1056, 1, 1, 256, 1, 1, 0, 0, arguments, 0)
        torch.cuda.synchronize()
        return out

    def _linear(self, linear: Linear, x: torch.Tensor) -> torch.Tensor:
        y = self.weights[linear.weight.name].float() @ x
        return y if linear.bias is None else y + self.weights[linear.bias.name]

    def _norm(self, x: torch.Tensor, ref: TensorRef | None) -> torch.Tensor:
        """RMSNorm over the last axis; x itself where there is no norm."""
        if ref is None:
            return x
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.graph.norm_eps) * self.weights[ref.name]

    def _rotate(self, x: torch.Tensor, pos: int, rope: int | None) -> torch.Tensor:
        if rope is None:
            return x
        cos, sin = self.ropes[rope, pos, :, 0], self.ropes[rope, pos, :, 1]
        half = cos.shape[0]
        a, b, rest = x[:, :half], x[:, half : 2 * half], x[:, 2 * half :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def _capped(x: torch.Tensor, cap: float) -> torch.Tensor:
    """Soft cap: cap * tanh(x / cap); 0 for none."""
    return cap * torch.tanh(x / cap) if cap else x


def random_cache(machine: CudaMachine, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal keys and values in the shape of the machine's cache; padded head dims are zero."""
    c = machine.program.config
    size = (c["layers"], c["kv_heads"], c["max_seq_padded"], c["head_dim_padded"])
    generator = torch.Generator("cuda").manual_seed(seed)
    dtype = DTYPES[machine.program.kv_dtype]
    keys, values = (torch.randn(size, device="cuda", dtype=dtype, generator=generator) for _ in range(2))
    for cache in (keys, values):
        cache[..., c["head_dim"] :] = 0
    return keys, values


def set_cache(machine: CudaMachine, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Write K/V [layers, kv_heads, max_seq padded to 16, head_dim padded to 16] into the machine's cache."""
    layer_bytes = 2 * keys[0].numel() * keys.element_size()
    for index in range(keys.shape[0]):
        packed = pack_kv(keys[index], values[index])
        torch.cuda.synchronize()
        call(driver().cuMemcpyDtoD, machine.kv_address + index * layer_bytes, packed.data_ptr(), layer_bytes)


def pack_kv(keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """K/V of a layer [kv_heads, rows, head_dim] in the blocks of kernels/kv_types.cuh (head_dim a multiple of 16)."""
    heads, rows, dim = keys.shape
    blocks = rows // KV_BLOCK
    packed = []
    for x, sizes, order in ((keys, KEY_SIZES, KEY_ORDER), (values, VALUE_SIZES, VALUE_ORDER)):
        axes = x.view(heads, blocks, *(size or dim // KV_BLOCK for size in sizes))
        elements = axes.permute(0, 1, *(2 + axis for axis in order)).reshape(heads, blocks, -1)
        if keys.dtype is torch.float32:  # two 16-byte planes per thread
            elements = elements.view(heads, blocks, -1, THREADS, 2, 4).transpose(3, 4).reshape(heads, blocks, -1)
        packed.append(elements)
    return torch.stack(packed, 2).contiguous()


def relative_error(got: Any, expected: torch.Tensor) -> float:
    """2-norm of the difference over the 2-norm of the reference; `got` is a NumPy vector."""
    difference = torch.from_numpy(got).cuda() - expected
    return float(difference.norm() / expected.norm())
