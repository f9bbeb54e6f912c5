"""Vectors beside the matrices: rows of the norms array, and the bias array, which q/k norm weights are in too."""

from __future__ import annotations

from amk.model.graph import Layer, Linear, TensorRef
from schedule_ir.layout import TILE_ROWS, ceil_to
from schedule_ir.program import PackedVector


class Vectors:
    """Collects them in the order in which they are asked for."""

    def __init__(self) -> None:
        self.norms: list[str] = []
        self.biases: list[PackedVector] = []

    def norm_row(self, norm: TensorRef | None) -> int:
        """A row of the norms array; ones where there is no norm."""
        self.norms.append(norm.name if norm else "")
        return len(self.norms) - 1

    def bias(self, linears: tuple[Linear, ...], interleaved: bool) -> int | None:
        """Where the biases of a matrix begin, in its packed row order; None where it has none."""
        if all(linear.bias is None for linear in linears):
            return None
        names = tuple(linear.bias.name if linear.bias else "" for linear in linears)
        return self._add(names, interleaved, tuple(linear.weight.shape[0] for linear in linears))

    def qk_norm(self, layer: Layer) -> int:
        """Where the q and k norm weights of a layer that has them begin."""
        assert layer.q_norm is not None
        assert layer.k_norm is not None
        sizes = layer.q_norm.shape[0], layer.k_norm.shape[0]
        return self._add((layer.q_norm.name, layer.k_norm.name), False, sizes)

    def _add(self, names: tuple[str, ...], interleaved: bool, rows: tuple[int, ...]) -> int:
        offset = self.bias_words
        self.biases.append(PackedVector(names, interleaved, rows, offset))
        return offset

    @property
    def bias_words(self) -> int:
        """Length of the bias array so far."""
        return sum(
            ceil_to(sum(v.rows), TILE_ROWS) if not v.interleaved else 2 * ceil_to(v.rows[0], 8) for v in self.biases
        )
