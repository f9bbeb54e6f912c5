"""The search space comes from the lowering's knobs, and every knob does something."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from amk.emit import emit_source
from amk.errors import RejectedProgramError
from amk.lower import Knobs, lower
from amk.model.source import Model
from autoresearch.errors import ProposalError
from autoresearch.space import Edit, knob_space
from autoresearch.spec import Spec, content_hash, spec_of
from schedule_ir import encode
from schedule_ir.codec import to_json
from tests.autoresearch.toy import toy_model, toy_program

SPACE = knob_space()
NAMES = [knob.name for knob in SPACE]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    # Wide enough that chunks, splits and the ring are all in play.
    sizes = {
        "hidden_size": 512,
        "intermediate_size": 2304,
        "num_attention_heads": 8,
        "head_dim": 64,
        "num_hidden_layers": 1,
    }
    return toy_model(tmp_path_factory.mktemp("model"), **sizes)


def test_the_space_is_the_knobs() -> None:
    assert [f.name for f in dataclasses.fields(Knobs)] == NAMES
    assert Knobs(**SPACE.default) == Knobs()
    assert all(len(knob.values) == len(set(knob.values)) > 1 for knob in SPACE)


@pytest.mark.parametrize("name", NAMES)
def test_every_knob_changes_tables_or_code(name: str, model: Model) -> None:
    knob = SPACE.knob(name)
    default = toy_program(model)
    before = content_hash(encode(default)), emit_source(default)
    changed = 0
    for value in knob.neighbours(knob.default):
        try:
            program = toy_program(model, Knobs(**{name: value}))
        except RejectedProgramError:
            continue  # a value that does not fit this model is no evidence
        changed += (content_hash(encode(program)), emit_source(program)) != before
    assert changed, f"no value of {name} changes anything"


def test_a_new_knob_is_searchable_without_touching_the_search() -> None:
    @dataclass(frozen=True)
    class More(Knobs):
        policy: int = field(default=0, metadata={"values": (0, 1), "changes": "L2 policy of weights"})

    space = knob_space(More)
    assert space.knob("policy").values == (0, 1)
    assert space.default["policy"] == 0


def test_a_knob_without_values_is_an_error() -> None:
    @dataclass(frozen=True)
    class Bare(Knobs):
        policy: int = 0

    with pytest.raises(TypeError, match=r"policy.*values"):
        knob_space(Bare)


@pytest.mark.parametrize(
    ("partial", "words"),
    [
        ({"speed": 1}, "no knob called 'speed'"),
        ({"in_flight": 7}, "in_flight = 7 is not one of"),
        ({"in_flight": True}, "in_flight = True"),
        ({"in_flight": "5"}, "in_flight = '5'"),
        ({"in_flight": 5.0}, "in_flight = 5.0"),
    ],
)
def test_what_is_not_in_the_space_is_named(partial: dict[str, object], words: str) -> None:
    with pytest.raises(ProposalError, match=words):
        SPACE.complete(partial)


def test_edits_and_neighbours() -> None:
    before = SPACE.complete({"in_flight": 5, "stocked": 6})
    after = SPACE.complete({"in_flight": 4, "stocked": 8})
    assert SPACE.edits(before, after) == [Edit("in_flight", 5, 4), Edit("stocked", 6, 8)]
    assert SPACE.knob("in_flight").neighbours(5)[:2] == [4, 6]


def test_equal_settings_have_equal_keys() -> None:
    one = spec_of({"knobs": {"in_flight": 4}}, SPACE)
    two = spec_of({"knobs": {**dict(reversed(SPACE.default.items())), "in_flight": 4}}, SPACE)
    assert one.key == two.key != spec_of({"knobs": {}}, SPACE).key


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "knobs",
        {},
        {"knobs": 3},
        {"knobs": {}, "cuda": "__global__ void f() {}"},
        {"source": "x"},
        {"program": "{"},
    ],
)
def test_anything_else_is_no_candidate(data: object) -> None:
    with pytest.raises(ProposalError):
        spec_of(data, SPACE)


def test_a_program_is_a_candidate_and_the_knob_note_is_no_content(model: Model) -> None:
    tables = encode(toy_program(model))
    spec = spec_of({"program": json.loads(to_json(tables))}, SPACE)
    assert isinstance(spec, Spec)
    renamed = dataclasses.replace(tables, header={**tables.header, "knobs": {}})
    assert content_hash(renamed) == content_hash(tables)
    other = encode(lower(model.graph, toy_program(model).target, 101, "fp16"))
    assert content_hash(other) != content_hash(tables)


def test_source_cannot_be_smuggled_in_through_a_header(model: Model, tmp_path: Path) -> None:
    from autoresearch.link import RefusedError
    from autoresearch.rungs import Side
    from tests.autoresearch.helpers import subject

    tables = encode(toy_program(model, max_seq=128))
    header = json.loads(json.dumps(tables.header))
    header["target"]["name"] = "h200\n__device__ int evil;"
    text = to_json(dataclasses.replace(tables, header=header))
    side = Side({"program": text}, subject(), model, lambda _: pytest.fail("must not be compiled"))
    with pytest.raises(RefusedError, match="target"):
        _ = side.tables
    good = Side({"program": to_json(tables)}, subject(), model, lambda _: pytest.fail("not yet"))
    assert content_hash(good.tables) == content_hash(tables)
