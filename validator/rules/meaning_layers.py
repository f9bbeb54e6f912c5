"""Rule 12: the data flow of the layers, from the embedding to the head, by symbolic execution of matrices.

What a mailbox holds at a phase is known by the matrix that was published there; what an SM's residual holds, by the
additions so far. Each activation must be made of exactly what the model says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from schedule_ir.layout import ksteps
from validator import describe
from validator.columns import BODY, HEAD, Columns, Ints
from validator.model import LayerLike, ModelLike, TensorLike
from validator.report import Violation
from validator.rules.meaning_model import Matrices, Wanted, bias_offsets, of_layer
from validator.rules.meaning_uses import Piece, Use


class MeaningError(Exception):
    """The schedule computes something else; `witness` shows the task."""

    def __init__(self, message: str, witness: str = "") -> None:
        super().__init__(message)
        self.witness = witness


class Flow:
    """Walks the model; `qkv` and `attention` of each layer are left for the attention rules."""

    def __init__(self, columns: Columns, model: ModelLike, uses: dict[int, Use]) -> None:
        self.columns, self.model, self.uses = columns, model, uses
        self.matrices = Matrices(columns)
        self.chain: list[int] = []
        self.qkv: list[Use] = []
        self.attention: list[Use] = []
        self.post: TensorLike | None = None
        self.partial: Ints | None = None

    def run(self) -> list[Violation]:
        """Theorem: qkv, o, gate/up, down and head of every layer multiply the activations that the model says."""
        try:
            residual: list[Use] = []
            for number, layer in enumerate(self.model.layers):
                residual = self._layer(number, layer, residual)
            self._head(residual)
            self._nothing_else()
            self._residuals()
        except MeaningError as error:
            return [Violation(12, str(error), error.witness)]
        return []

    def _layer(self, number: int, layer: LayerLike, before: list[Use]) -> list[Use]:
        qkv, o, gate_up, down = of_layer(layer)
        name = f"layer {number}"
        first = self._one(qkv, scaled=layer.attn_norm is not None, gated=False)
        self._normed(f"{name} attention", first, before, layer.attn_norm, self.post)
        second = self._one(o, scaled=False, gated=False)
        self._gathers(f"{name} o", second.only, self.model.heads * self.model.head_dim)
        third = self._one(gate_up, scaled=layer.mlp_norm is not None, gated=True)
        self._normed(f"{name} MLP", third, [second], layer.mlp_norm, layer.post_attn_norm)
        parts = self._claim(down, parts=True)
        for part in parts:
            for piece in part.pieces:
                self._down_piece(name, piece, third)
        self._flags(down, parts, scaled=False, gated=False)
        self.qkv.append(first)
        self.attention.append(second)
        self.post = layer.post_mlp_norm
        return parts

    def _claim(self, wanted: Wanted, *, parts: bool = False) -> list[Use]:
        """The uses of a matrix's first band of rows. Theorem: those of its other bands are the same; the matrix is used
        in parts that are sums of pieces of it: neighbouring columns, nothing else.

        The tiles cover its rows and columns once (`claim`), each is a piece of one use (`uses`); so the parts add up to
        it.
        """
        bands, problem = self.matrices.claim(wanted, parts=parts)
        if problem:
            raise MeaningError(problem)
        found = [self._parts(wanted, band) for band in bands]
        alike = [[self._without_rows(use) for use in band] for band in found]
        for band, uses in zip(bands, alike, strict=True):
            if uses != alike[0]:
                names = " and ".join(self.columns.program.tiles[numbers[0]].name for numbers in (bands[0], band))
                text = "\n".join(self._witness(used[0].pieces[0]) for used in (found[0], found[bands.index(band)]))
                raise MeaningError(f"{names}, rows of one matrix, are not used alike", text)
        return found[0]

    def _parts(self, wanted: Wanted, numbers: list[int]) -> list[Use]:
        """The uses of a band of rows."""
        found = list({id(self.uses[n]): self.uses[n] for n in numbers}.values())
        if [piece.tile for use in found for piece in sorted(use.pieces, key=self._columns)] != numbers:
            name, tiles = " + ".join(wanted.tensors), self.columns.program.tiles
            summed = [[f"{tiles[p.tile].name} {tiles[p.tile].columns}" for p in use.pieces] for use in found]
            raise MeaningError(f"{name}: products are summed of {summed}, not of neighbouring columns of it alone")
        return found

    def _without_rows(self, use: Use) -> tuple[Use, list[tuple[int, int]]]:
        """What is to be the same for all bands: all but the tables and the tasks; instead of a table its columns."""
        pieces = tuple(replace(piece, tile=-1, task=-1) for piece in use.pieces)
        return replace(use, pieces=pieces), [self._columns(piece) for piece in use.pieces]

    def _columns(self, piece: Piece) -> tuple[int, int]:
        return self.columns.program.tiles[piece.tile].columns

    def _one(self, wanted: Wanted, *, scaled: bool, gated: bool) -> Use:
        found = self._claim(wanted)
        self._flags(wanted, found, scaled=scaled, gated=gated)
        return found[0]

    def _flags(self, wanted: Wanted, found: list[Use], *, scaled: bool, gated: bool) -> None:
        """Theorem: norm scale and gate are applied where the model has them, and a bias is added exactly once."""
        name = " + ".join(wanted.tensors)
        for use in found:
            if (use.op, use.scaled, use.gated) != ("publish", scaled, gated):
                raise MeaningError(f"{name} is taken by {use.op} with scaled={use.scaled}, gated={use.gated}")
            if use.section != BODY:
                raise MeaningError(f"{name} is multiplied in the head section, which most prompt tokens skip")
        added = [use.bias for use in found if use.bias is not None]
        if len(added) != int(wanted.biases is not None):
            raise MeaningError(f"{name}: bias added {len(added)} times, the model has {wanted.biases or 'none'}")
        if added and added[0] not in bias_offsets(self.columns, wanted):
            raise MeaningError(f"{name}: bias {added[0]} is not where {wanted.biases} lies")

    def _witness(self, piece: Piece) -> str:
        return describe.task(self.columns, piece.task)

    def _steps(self, what: str, piece: Piece, length: int) -> None:
        steps = {piece.arguments["ksteps"], self.columns.program.tiles[piece.tile].ksteps}
        if steps != {ksteps(length)}:
            raise MeaningError(f"{what}: {length} inputs are {ksteps(length)} k-steps", self._witness(piece))

    def _normed(self, what: str, use: Use, parts: list[Use], norm: TensorLike | None, post: TensorLike | None) -> None:
        """Theorem: the input is the norm of the residual after exactly these matrices were added, in order, and normed
        by `post` where the model does.
        """
        piece = use.only
        loader = "embed_norm" if not parts else "add_norm" if post is None else "add_post_norm"
        if piece.loader != loader:
            raise MeaningError(f"{what}: input comes from {piece.loader}, not from {loader}", self._witness(piece))
        self._row(what, piece, "norm", norm)
        if post is not None and parts:
            self._row(what, piece, "post", post)
        if parts:
            self._sources(what, piece, parts)
        self._steps(what, piece, self.model.hidden)
        self.chain.append(piece.task)

    def _row(self, what: str, piece: Piece, field: str, norm: TensorLike | None) -> None:
        """Theorem: a row of the norms array is the model's, or ones where it norms with no weight."""
        row, names = piece.arguments.get(field, -1), self.columns.program.norms
        expected = "" if norm is None else norm.name
        if not 0 <= row < len(names) or names[row] != expected:
            raise MeaningError(f"{what}: {field} row {row} is not {expected or 'ones'}", self._witness(piece))

    def _sources(self, what: str, piece: Piece, parts: list[Use]) -> None:
        given = piece.arguments
        expected = [(given["src"] + i * given["stride"], given["phase"]) for i in range(given["parts"])]
        made = [(part.base, part.phase) for part in parts]
        if expected != made:
            raise MeaningError(
                f"{what}: adds (packet, phase) {expected}, the matrices are at {made}", self._witness(piece)
            )

    def _gathers(self, what: str, piece: Piece, length: int) -> None:
        if piece.loader != "gather" or piece.arguments["length"] != length:
            raise MeaningError(f"{what}: input is not a gather of {length}", self._witness(piece))
        self._steps(what, piece, length)

    def _down_piece(self, name: str, piece: Piece, source: Use) -> None:
        """Theorem: a piece of down is multiplied with exactly its columns of the gated MLP activation of its layer."""
        begin, end = self._columns(piece)
        self._gathers(f"{name} down [{begin}, {end})", piece, end - begin)
        given = piece.arguments
        if (given["src"], given["phase"]) != (source.base + begin, source.phase):
            expected = f"packet {source.base + begin}, phase {source.phase}"
            raise MeaningError(
                f"{name} down [{begin}, {end}): gathers {given['src']}, phase {given['phase']}, not {expected}",
                self._witness(piece),
            )

    def _head(self, residual: list[Use]) -> None:
        """Theorem: logits are head rows times the final norm of the complete residual."""
        wanted = Wanted((self.model.head,))
        use = self._claim(wanted)[0]
        if use.op != "head" or use.base != 0 or use.section != HEAD:
            raise MeaningError(f"head matrix is taken by {use.op} from row {use.base}, not by head from row 0")
        self._normed("head", use, residual, self.model.final_norm, self.post)

    def _nothing_else(self) -> None:
        rest = self.matrices.unclaimed()
        if rest:
            raise MeaningError(f"matrix {rest[0]} is multiplied, but the model has none such there")

    def _residuals(self) -> None:
        """Theorem: every SM adds the same parts in the same order, so its residual is the model's."""
        columns = self.columns
        tasks = columns.of("embed_norm", "add_norm", "add_post_norm")
        sm = columns.sm[tasks]
        rank = np.arange(len(tasks)) - np.searchsorted(sm, sm)
        expected = columns.words[np.array(self.chain, np.int64)]
        extra = np.nonzero(rank >= len(expected))[0]
        wrong = (columns.words[tasks] != expected[np.minimum(rank, len(expected) - 1)]).any(1)
        bad = np.union1d(extra, np.nonzero(wrong)[0])
        if len(bad):
            at = int(bad[0])
            due = describe.task(columns, self.chain[min(int(rank[at]), len(expected) - 1)])
            text = f"{describe.task(columns, int(tasks[at]))}\n  where an SM's residual is due for the same as\n{due}"
            raise MeaningError("the residual of an SM is not the model's", text)
