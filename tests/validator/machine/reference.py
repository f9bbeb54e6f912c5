"""A straightforward evaluation of the model graph, in the machine's values."""

from __future__ import annotations

from typing import Any

from schedule_ir import Program
from tests.validator.machine.state import BadProgramError, Setup
from tests.validator.machine.values import add


def reference(
    graph: Any, program: Program, setup: Setup, prompt: list[Any]
) -> tuple[dict[int, list[Any]], dict[int, Any]]:
    """(logits of each token with a head, K/V rows at the end) of the model; of the tiles it uses down's K-split."""
    return _Reference(graph, program, setup, prompt).run()


class _Reference:
    def __init__(self, graph: Any, program: Program, setup: Setup, prompt: list[Any]) -> None:
        self.graph, self.setup, self.prompt = graph, setup, prompt
        self.padded = program.config["max_seq_padded"]
        self.kv: dict[int, Any] = history(graph, self.padded, setup.start)
        self.pieces = [self.pieces_of(program, layer.down.weight) for layer in graph.layers]

    def pieces_of(self, program: Program, weight: Any) -> list[tuple[int, int]]:
        """Column ranges in which a matrix lies on the tapes, which must be all its columns, once."""
        pieces = sorted({tiles.columns for tiles in program.tiles if tiles.tensors == (weight.name,)})
        if [0, *(end for _, end in pieces)] != [*(begin for begin, _ in pieces), weight.shape[1]]:
            raise BadProgramError(f"{weight.name} lies in pieces {pieces}")
        return pieces

    def run(self) -> tuple[dict[int, list[Any]], dict[int, Any]]:
        logits: dict[int, list[Any]] = {}
        token: Any = None
        for step, head in enumerate(self.setup.heads):
            token = self.prompt[step] if self.prompt[step] is not None else token
            residual = [hash(("embed", token, i)) for i in range(self.graph.hidden)]
            for number, layer in enumerate(self.graph.layers):
                residual = self.layer(number, layer, residual, self.setup.start + step)
            if head:
                x, scale = self.norm(self.graph.final_norm.name, residual)
                logits[step] = self.linear(self.graph.head, x, scale)
                token = hash(tuple(logits[step]))
        return logits, self.kv

    def slices(self, values: list[Any]) -> tuple[Any, ...]:
        return tuple(
            hash(tuple(v for i, v in enumerate(values) if (i // 16) % self.setup.warps == w))
            for w in range(self.setup.warps)
        )

    def norm(self, name: str, residual: list[Any]) -> tuple[Any, Any]:
        x = self.slices([hash(("norm", name, i, r)) for i, r in enumerate(residual)])
        parts = (
            [(i, r) for i, r in enumerate(residual) if (i // 16) % self.setup.warps == w]
            for w in range(self.setup.warps)
        )
        return x, tuple(hash(tuple(sorted(part))) for part in parts)

    def product(self, linear: Any, x: Any, columns: tuple[int, int]) -> list[int]:
        return [add(hash(((linear.weight.name, row, columns), x))) for row in range(linear.weight.shape[0])]

    def linear(self, linear: Any, x: Any, scale: Any) -> list[Any]:
        values = self.product(linear, x, (0, linear.weight.shape[1]))
        return self.biased(linear, [hash((v, scale)) if scale is not None else v for v in values])

    def biased(self, linear: Any, values: list[Any]) -> list[Any]:
        name = linear.bias.name if linear.bias is not None else None
        return [add(value, hash((name, row)) if name else 0) for row, value in enumerate(values)]

    def together(self, linears: tuple[Any, ...], x: Any, scale: Any) -> list[list[Any]]:
        return [self.linear(linear, x, scale) for linear in linears]

    def layer(self, number: int, layer: Any, residual: list[Any], pos: int) -> list[Any]:
        q, k, v = self.together((layer.q, layer.k, layer.v), *self.norm(layer.attn_norm.name, residual))
        attention = self.attention(number, q, k, v, pos)
        [o] = self.together((layer.o,), self.slices(attention), None)
        residual = [add(r, value) for r, value in zip(residual, o, strict=True)]
        gate, up = self.together((layer.gate, layer.up), *self.norm(layer.mlp_norm.name, residual))
        mlp = [hash(("gated", a, b)) for a, b in zip(gate, up, strict=True)]
        products = [
            self.product(layer.down, self.slices(mlp[begin:end]), (begin, end)) for begin, end in self.pieces[number]
        ]
        down = self.biased(layer.down, [add(*row) for row in zip(*products, strict=True)])
        return [add(r, value) for r, value in zip(residual, down, strict=True)]

    def attention(self, number: int, q: list[Any], k: list[Any], v: list[Any], pos: int) -> list[Any]:
        g, d = self.graph, self.graph.head_dim
        result: list[Any] = []
        for head in range(g.heads):
            kv = head // (g.heads // g.kv_heads)
            base = (number * g.kv_heads + kv) * self.padded
            key, value = (hash(tuple(x[kv * d : (kv + 1) * d])) for x in (k, v))
            self.kv[base + pos] = hash((key, value, pos))
            window = self.graph.layers[number].window
            first = max(0, pos + 1 - window) if window else 0
            rows = tuple(self.kv[base + row] for row in range(first, pos + 1))
            query = hash((hash(tuple(q[head * d : (head + 1) * d])), pos))
            result += [hash(("attention", query, rows, i)) for i in range(d)]
        return result


def history(graph: Any, padded: int, start: int) -> dict[int, Any]:
    """Rows that earlier launches left."""
    heads = range(len(graph.layers) * graph.kv_heads)
    return {head * padded + row: hash(("history", head, row)) for head in heads for row in range(start)}
