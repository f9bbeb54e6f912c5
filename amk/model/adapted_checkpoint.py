"""A stored checkpoint as the graph sees it: fused tensors apart, rotated pairs in halves, norms as multipliers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from amk.model.checkpoint import NamedCheckpoint
from amk.model.graph import FusedTensor, ModelGraph, TensorRef
from amk.model.walker import HEAD


class AdaptedCheckpoint:
    """A `Checkpoint` over another one whose tensors are not stored one by one as the graph names them.

    A part of a fused tensor has its rows; the last fused tensor that was read is kept, as its parts follow each other.
    See `ModelGraph` for `fused`, `paired` and `norm_offset`. Of a tied head and embedding either may be stored.
    """

    def __init__(self, stored: NamedCheckpoint, graph: ModelGraph) -> None:
        self.stored = stored
        self._parts = {part.name: (fused, begin) for fused in graph.fused for part, begin in _begins(fused)}
        self._fused = {fused.ref.name: fused for fused in graph.fused}
        self._offset = np.float32(graph.norm_offset)
        norms = {ref.name for layer in graph.layers for ref in layer.norms()}
        self._norms = norms | {graph.final_norm.name} if graph.norm_offset else set()
        self._paired = {ref.name: half_order(ref.shape[0], graph.head_dim, graph.rope.dim) for ref in graph.paired}
        self._stored_name = _stored_names(stored, graph)
        self._last: tuple[str, npt.NDArray[np.uint16]] | None = None

    @property
    def kind(self) -> str:
        """That of the stored checkpoint."""
        return self.stored.kind

    @property
    def digest(self) -> str:
        """That of the stored checkpoint."""
        return self.stored.digest

    def names(self) -> list[str]:
        """Every tensor, parts in place of the fused ones."""
        names = []
        shown = {stored: name for name, stored in self._stored_name.items()}
        for name in (shown.get(name, name) for name in self.stored.names()):
            fused = self._fused.get(name)
            names += [part.name for part in fused.parts] if fused else [name]
        return names

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor. Raises UnsupportedModelError if it is absent.

        Of a part where the fused tensor has the expected shape; otherwise that of the fused tensor.
        """
        if name not in self._parts:
            return self.stored.shape(self._stored_name.get(name, name))
        fused, _ = self._parts[name]
        found = self.stored.shape(fused.ref.name)
        return next(part.shape for part in fused.parts if part.name == name) if found == fused.ref.shape else found

    def bf16(self, name: str) -> npt.NDArray[np.uint16]:
        """bf16 bit patterns, row-major."""
        if name not in self._parts:
            values = self.stored.bf16(self._stored_name.get(name, name))
        else:
            fused, begin = self._parts[name]
            values = self._whole(fused.ref)[begin : begin + self.shape(name)[0]]
        return values[self._paired[name]] if name in self._paired else values

    def fp32(self, name: str) -> npt.NDArray[np.float32]:
        """A norm weight, with its offset, or a bias."""
        values = self.stored.fp32(self._stored_name.get(name, name))
        if name in self._paired:
            values = values[self._paired[name]]
        return values + self._offset if name in self._norms else values

    def _whole(self, ref: TensorRef) -> npt.NDArray[np.uint16]:
        if self._last is None or self._last[0] != ref.name:
            self._last = ref.name, self.stored.bf16(ref.name)
        return self._last[1]


def _stored_names(stored: NamedCheckpoint, graph: ModelGraph) -> dict[str, str]:
    """Tensors that are stored under another name: the embedding, where a tied head is stored instead."""
    names = set(stored.names())
    embed = graph.embed.name
    return {embed: HEAD} if graph.tied_head and embed not in names and HEAD in names else {}


def half_order(rows: int, head_dim: int, rotated: int) -> npt.NDArray[np.intp]:
    """intp [rows]: the stored row of each row whose pairs are to be half of the `rotated` dimensions of a head apart.

    Stored, a pair is two neighbouring rows; dimensions of a head from `rotated` on stay where they are.
    """
    head = np.arange(head_dim)
    head[:rotated] = head[:rotated].reshape(-1, 2).T.reshape(-1)
    return (np.arange(0, rows, head_dim)[:, None] + head).reshape(-1)


def _begins(fused: FusedTensor) -> list[tuple[TensorRef, int]]:
    """(part, its first row) of a fused tensor."""
    begins, row = [], 0
    for part in fused.parts:
        begins.append((part, row))
        row += part.shape[0]
    return begins
