"""What the validator needs to know of a model graph, as structure: `amk.model.graph.ModelGraph` has this shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class TensorLike(Protocol):
    """A tensor of the checkpoint: its name and shape."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102


class LinearLike(Protocol):
    """y = W x (+ b)."""

    @property
    def weight(self) -> TensorLike: ...  # noqa: D102
    @property
    def bias(self) -> TensorLike | None: ...  # noqa: D102


class LayerLike(Protocol):
    """One decoder layer."""

    @property
    def attn_norm(self) -> TensorLike | None: ...  # noqa: D102
    @property
    def q(self) -> LinearLike: ...  # noqa: D102
    @property
    def k(self) -> LinearLike: ...  # noqa: D102
    @property
    def v(self) -> LinearLike: ...  # noqa: D102
    @property
    def o(self) -> LinearLike: ...  # noqa: D102
    @property
    def mlp_norm(self) -> TensorLike | None: ...  # noqa: D102
    @property
    def post_attn_norm(self) -> TensorLike | None: ...  # noqa: D102
    @property
    def post_mlp_norm(self) -> TensorLike | None: ...  # noqa: D102
    @property
    def q_norm(self) -> TensorLike | None: ...  # noqa: D102
    @property
    def k_norm(self) -> TensorLike | None: ...  # noqa: D102
    @property
    def window(self) -> int: ...  # noqa: D102
    @property
    def rope(self) -> int | None: ...  # noqa: D102
    @property
    def gate(self) -> LinearLike: ...  # noqa: D102
    @property
    def up(self) -> LinearLike: ...  # noqa: D102
    @property
    def down(self) -> LinearLike: ...  # noqa: D102


class RopeLike(Protocol):
    """Rotary embedding: how many dimensions of a head are rotated."""

    @property
    def dim(self) -> int: ...  # noqa: D102


class ModelLike(Protocol):
    """A decoder-only model, as far as a schedule depends on it."""

    @property
    def hidden(self) -> int: ...  # noqa: D102
    @property
    def intermediate(self) -> int: ...  # noqa: D102
    @property
    def heads(self) -> int: ...  # noqa: D102
    @property
    def kv_heads(self) -> int: ...  # noqa: D102
    @property
    def head_dim(self) -> int: ...  # noqa: D102
    @property
    def vocab(self) -> int: ...  # noqa: D102
    @property
    def norm_eps(self) -> float: ...  # noqa: D102
    @property
    def activation(self) -> str: ...  # noqa: D102
    @property
    def attention_scale(self) -> float: ...  # noqa: D102
    @property
    def ropes(self) -> Sequence[RopeLike]: ...  # noqa: D102
    @property
    def embed_scale(self) -> float: ...  # noqa: D102
    @property
    def residual_multiplier(self) -> float: ...  # noqa: D102
    @property
    def logits_divisor(self) -> float: ...  # noqa: D102
    @property
    def logits_cap(self) -> float: ...  # noqa: D102
    @property
    def score_cap(self) -> float: ...  # noqa: D102
    @property
    def embed(self) -> TensorLike: ...  # noqa: D102
    @property
    def layers(self) -> Sequence[LayerLike]: ...  # noqa: D102
    @property
    def final_norm(self) -> TensorLike: ...  # noqa: D102
    @property
    def head(self) -> LinearLike: ...  # noqa: D102
    @property
    def tied_head(self) -> bool: ...  # noqa: D102
