"""Rule 12: sizes, numbers and matrices of the header against the model graph."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from schedule_ir.layout import KV_ELEMENT_BYTES, TILE_ROWS, ceil_to
from schedule_ir.ops.linear import ACTIVATIONS
from schedule_ir.program import NEUTRAL_SCALARS, TensorTiles
from validator.columns import Columns
from validator.model import LayerLike, LinearLike, ModelLike
from validator.tape import packed_rows


def sizes(columns: Columns, model: ModelLike) -> list[str]:
    """Theorem: every size and number of the header is the model's."""
    config = columns.config
    expected = {
        "layers": len(model.layers), "hidden": model.hidden, "hidden_padded": ceil_to(model.hidden, TILE_ROWS),
        "intermediate": model.intermediate, "heads": model.heads, "kv_heads": model.kv_heads,
        "head_dim": model.head_dim, "head_dim_padded": ceil_to(model.head_dim, 16), "rotary_dim": model.ropes[0].dim,
        "rope_tables": len(model.ropes),
        "vocab": model.vocab, "tied_head": int(model.tied_head), "partial_stride": model.head_dim + 2,
        "kv_element_bytes": KV_ELEMENT_BYTES.get(columns.program.kv_dtype, 0),
    }  # fmt: skip
    broken = [f"config {n} = {config[n]}, the model says {v}" for n, v in expected.items() if config[n] != v]
    broken += _scalars(columns, model)
    activation = tuple(ACTIVATIONS)[config["activation"] : config["activation"] + 1]
    if activation != (model.activation,):
        broken.append(f"activation {config['activation']} is {activation}, the model says {model.activation!r}")
    if any(rope.dim != model.ropes[0].dim for rope in model.ropes):
        broken.append("the model's rotary embeddings rotate different numbers of dimensions")
    if model.heads % model.kv_heads:
        broken.append(f"{model.heads} heads are not a multiple of {model.kv_heads} K/V heads")
    if model.head.bias is not None:
        broken.append("the model's head has a bias, op head adds none")
    return broken


def _scalars(columns: Columns, model: ModelLike) -> list[str]:
    """Theorem: every real number is the model's, there are no others."""
    expected = {"eps": model.norm_eps, "attention_scale": model.attention_scale}
    expected |= {name: getattr(model, name) for name in NEUTRAL_SCALARS}
    unknown = sorted(set(columns.program.scalars) - set(expected))
    broken = [f"scalar {name} has no meaning in the op registry" for name in unknown]
    for name, value in expected.items():
        if columns.program.scalar(name) != value:
            broken.append(f"scalar {name} = {columns.program.scalar(name)}, the model says {value}")
    return broken


@dataclass(frozen=True)
class Wanted:
    """A matrix of the model as tiles: stacked or interleaved tensors, all rows, `columns` inputs in all."""

    linears: tuple[LinearLike, ...]
    interleaved: bool = False

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the weights."""
        return tuple(linear.weight.name for linear in self.linears)

    @property
    def rows(self) -> tuple[int, ...]:
        """Outputs of each."""
        return tuple(linear.weight.shape[0] for linear in self.linears)

    @property
    def columns(self) -> int:
        """Inputs."""
        return self.linears[0].weight.shape[1]

    @property
    def biases(self) -> tuple[str, ...] | None:
        """Names of the biases ("" where there is none), None if there is none at all."""
        names = tuple(linear.bias.name if linear.bias is not None else "" for linear in self.linears)
        return names if any(names) else None


def of_layer(layer: LayerLike) -> tuple[Wanted, Wanted, Wanted, Wanted]:
    """q/k/v, o, gate/up and down of a layer."""
    attention = Wanted((layer.q, layer.k, layer.v)), Wanted((layer.o,))
    return (*attention, Wanted((layer.gate, layer.up), interleaved=True), Wanted((layer.down,)))


class Matrices:
    """The header's matrices by their tensors, each to be claimed once."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._free: dict[tuple[str, ...], list[int]] = {}
        for number, tiles in enumerate(columns.program.tiles):
            self._free.setdefault(tiles.tensors, []).append(number)

    def claim(self, wanted: Wanted, *, parts: bool = False) -> tuple[list[list[int]], str | None]:
        """The tiles of each band of rows of a matrix, in the order of their columns; a problem where they are not
        exactly the matrix.

        Theorem: the bands cover the rows once, and the parts of each the columns, with the right tensors in the right
        order.
        """
        tiles = self.columns.program.tiles
        numbers = self._free.pop(wanted.tensors, [])
        name = " + ".join(wanted.tensors)
        for n in numbers:
            if tiles[n].rows != wanted.rows or tiles[n].interleaved != wanted.interleaved:
                found = f"rows {tiles[n].rows} (interleaved: {tiles[n].interleaved})"
                return [], f"{name}: {found}, the model has {wanted.rows}"
        bands: dict[tuple[int, int], list[int]] = {}
        for n in sorted(numbers, key=lambda n: (tiles[n].first_row, tiles[n].columns)):
            bands.setdefault(_row_range(tiles[n]), []).append(n)
        rows = packed_rows(wanted.rows, wanted.interleaved)
        edges = [0, *(end for _, end in bands)]
        if not bands or edges[:-1] != [begin for begin, _ in bands] or edges[-1] < rows:
            return [], f"{name}: bands of rows {sorted(bands)} do not cover {rows} once"
        problems = (self._columns_problem(name, band, wanted.columns, parts) for band in bands.values())
        return list(bands.values()), next(filter(None, problems), None)

    def _columns_problem(self, name: str, band: list[int], columns: int, parts: bool) -> str | None:
        """Where the tiles of a band do not cover the columns once, or are several although they are to be one."""
        ranges = [self.columns.program.tiles[n].columns for n in band]
        if len(band) > 1 and not parts:
            return f"{name}: {len(band)} tile tables of the same rows, expected one"
        if [0, *(end for _, end in ranges)] != [*(begin for begin, _ in ranges), columns]:
            return f"{name}: columns {ranges} do not cover {columns} once"
        return None

    def unclaimed(self) -> list[str]:
        """Matrices that the model does not have."""
        return [" + ".join(tensors) for tensors in self._free]


def _row_range(tiles: TensorTiles) -> tuple[int, int]:
    """Packed rows, those of padding included."""
    return tiles.first_row, tiles.first_row + len(tiles.sms) * tiles.unit_rows


def bias_offsets(columns: Columns, wanted: Wanted) -> set[int]:
    """Places in the bias array of vectors that are the biases of this matrix."""
    return {
        vector.offset
        for vector in columns.program.biases
        if (vector.tensors, vector.interleaved, vector.rows) == (wanted.biases, wanted.interleaved, wanted.rows)
    }


def bias_overlaps(columns: Columns) -> list[str]:
    """Theorem: the bias vectors lie apart."""
    ranked = sorted(
        (v.offset, v.offset + ceil_to(packed_rows(v.rows, v.interleaved), TILE_ROWS)) for v in columns.program.biases
    )
    return [f"bias vectors overlap at {b[0]}" for a, b in pairwise(ranked) if a[1] > b[0]]
