"""Real lowerings are accepted, and the oracle finds nothing wrong with them either."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from amk.lower import Knobs, lower
from amk.lower.mailboxes import Mailboxes
from schedule_ir import encode
from tests.validator import campaign, oracle, programs
from tests.validator.mutations import Sheet
from validator import validate


@pytest.mark.parametrize("seed", range(40))
def test_random_lowering(seed: int) -> None:
    case = programs.random_case(random.Random(1000 + seed))
    report = validate(case.tables, case.model, case.gpu)
    assert sorted(report.rules) == list(range(1, 13))
    if not report.ok:  # a split of down over few units (see the test below): then the oracle can show the hang
        assert {v.rule for v in report.violations} == {4}, report.text()
        assert campaign.trouble(case.tables, case.model, random.Random(seed), campaign.CONFIRM) is not None
    elif seed % 4 == 0:
        assert campaign.trouble(case.tables, case.model, random.Random(seed), runs=2) is None


@pytest.mark.parametrize("splits", [1, 2, 3, 16])
def test_oracle_agrees_at_every_position_where_the_splits_change(splits: int) -> None:
    case = programs.case(sms=6, knobs=Knobs(compute_warps=4, chunk_ksteps=4, max_splits=splits, min_split_rows=16))
    for start in (0, 14, 15, 30, 31, 46):
        setup = oracle.Setup(start, (False, True, False, True))
        assert oracle.judge(case.tables, case.model, setup, oracle.by_priority(random.Random(start))) is None


@pytest.mark.parametrize("window", [2, 15, 17, 40])
def test_windows(window: int) -> None:
    case = programs.case(window=window, knobs=Knobs(2, 2, down_pieces=2, max_splits=3, min_split_rows=16))
    report = validate(case.tables, case.model, case.gpu)
    assert report.ok, report.text()
    for start in (0, 14, 31, 46):
        setup = oracle.Setup(start, (False, True, True))
        assert oracle.judge(case.tables, case.model, setup, oracle.by_priority(random.Random(start))) is None


@pytest.mark.parametrize("seed", range(25))
def test_accepted_placements_never_hang(seed: int) -> None:
    """Units dealt at random: whatever the validator accepts must survive the oracle."""
    rng = random.Random(seed)
    case = campaign.random_placement(rng)
    if validate(case.tables, case.model, case.gpu).ok:
        assert campaign.trouble(case.tables, case.model, rng, runs=4) is None


@pytest.mark.parametrize("slots", [14, 15])
def test_every_reduction_slot_has_a_barrier_of_the_block(slots: int) -> None:
    case = programs.case(knobs=replace(programs.KNOBS, reduce_slots=slots))
    report = validate(case.tables, case.model, case.gpu)
    assert report.ok == (slots == 14)
    assert report.ok or "reduce_slots = 15; a block has barriers for 14" in report.text()


def test_lowering_of_one_layer_can_hang_and_is_rejected() -> None:
    """An SM without a unit of down releases its K/V rows before another has acquired those of the token before."""
    case = programs.case(layers=1, sms=8, knobs=replace(programs.KNOBS, max_splits=4))
    report = validate(case.tables, case.model, case.gpu)
    assert [v.rule for v in report.violations[:1]] == [4], report.text()
    assert "kv_released" in report.violations[0].message
    assert campaign.trouble(case.tables, case.model, random.Random(5), runs=150) is not None


def test_append_comes_after_all_query_blocks_of_its_head() -> None:
    """More than 8 queries per K/V head: each query block copies the block of row pos, which must not change before."""
    model = programs.graph(heads=12, kv_heads=1)
    gpu = programs.target(6)
    tables = encode(lower(model, gpu, 64, "fp16", programs.KNOBS))
    assert validate(tables, model, gpu).ok
    sheet = Sheet(tables, random.Random(0))
    for key, place in sheet.find("append"):
        rows = sheet.lanes[key]
        attends = [i for i in range(place) if sheet.ops[rows[i][0]] == "attend"]
        rows.insert(attends[-1], rows.pop(place))
    report = validate(sheet.tables(), model, gpu)
    assert {v.rule for v in report.violations} == {4}
    assert "races with the append" in report.violations[0].message


PIECES = Knobs(2, 2, down_pieces=4, max_splits=2, min_split_rows=16)


@pytest.mark.parametrize("parts", [1, 2])
def test_down_in_pieces(parts: int) -> None:
    """Several units per SM, each in pieces; also where the pieces make parts that are published on their own."""
    case = programs.case(intermediate=128, hidden=64, sms=3, bias=True, knobs=replace(PIECES, down_split=parts))
    assert {v.op for v in case.program.variants} >= {"gemv_park", "gemv_resume"}
    assert case.program.config["accumulators"] == 2
    report = validate(case.tables, case.model, case.gpu)
    assert report.ok, report.text()
    assert campaign.trouble(case.tables, case.model, random.Random(parts), runs=6) is None


@pytest.mark.parametrize("pieces", [1, 2])
def test_units_of_8_rows(pieces: int) -> None:
    """Where every warp has both halves of all its k-steps; elsewhere units keep 16 rows."""
    knobs = replace(PIECES, down_pieces=pieces, qkv_rows=8, o_rows=8, down_rows=8)
    case = programs.case(intermediate=128, hidden=64, sms=3, bias=True, knobs=knobs)
    assert {t.unit_rows for t in case.program.tiles} == {16, 8}
    assert {t.unit_rows for t in case.program.tiles if "qkv" in t.name or ".o" in t.name or "down" in t.name} == {8}
    report = validate(case.tables, case.model, case.gpu)
    assert report.ok, report.text()
    assert campaign.trouble(case.tables, case.model, random.Random(pieces), runs=6) is None
    odd = programs.case(hidden=48, knobs=replace(PIECES, down_pieces=1, qkv_rows=8))
    assert {tiles.unit_rows for tiles in odd.program.tiles} == {16}


@pytest.mark.parametrize(("sms", "banded"), [(3, {"o", "down"}), (6, {"qkv"})])
def test_bands_of_16_and_8_rows(sms: int, banded: set[str]) -> None:
    """Whole rounds of units of 16 rows, the rest in units of 8: with biases, and down in pieces."""
    case = programs.case(intermediate=128, hidden=64, sms=sms, bias=True, knobs=replace(PIECES, down_pieces=2))
    assert {tiles.name.split(".")[2] for tiles in case.program.tiles if tiles.first_row} == banded
    report = validate(case.tables, case.model, case.gpu)
    assert report.ok, report.text()
    assert campaign.trouble(case.tables, case.model, random.Random(sms), runs=6) is None


def test_pieces_in_another_order_than_their_columns() -> None:
    """The sum is the same: accepted if all units have the same order, and the gathers follow it."""
    case = programs.case(intermediate=128, hidden=64, sms=2, knobs=replace(PIECES, down_pieces=2))
    tiles = [t for t in case.program.tiles if "down" in t.name]
    other = {
        a.name: b for a, b in [*zip(tiles[::2], tiles[1::2], strict=True), *zip(tiles[1::2], tiles[::2], strict=True)]
    }
    changed = tuple(replace(t, columns=other[t.name].columns) if t.name in other else t for t in case.program.tiles)
    sheet = Sheet(encode(replace(case.program, tiles=changed)), random.Random(0))
    assert {v.rule for v in validate(sheet.tables(), case.model, case.gpu).violations} == {12}
    for key, places in _gathers_of_pieces(sheet).items():
        rows = sheet.lanes[key]
        for i, j in zip(places[::2], places[1::2], strict=True):
            rows[i][1], rows[j][1] = rows[j][1], rows[i][1]
    report = validate(sheet.tables(), case.model, case.gpu)
    assert report.ok, report.text()
    assert campaign.trouble(sheet.tables(), case.model, random.Random(2), runs=6) is None


def _gathers_of_pieces(sheet: Sheet) -> dict[tuple[int, int, int], list[int]]:
    """By lane: the gathers right before a gemv_park or gemv_resume."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for key, i in sheet.find("gather"):
        if sheet.ops[sheet.lanes[key][i + 1][0]].startswith("gemv_"):
            found.setdefault(key, []).append(i)
    return found


def test_one_ring_slot_is_enough_for_whole_units_only() -> None:
    """A warp loads a chunk before it releases the one before: with one slot it would wait for ever."""
    one = {"ring_stages": 1, "in_flight": 1, "in_flight_low": 1, "stocked": 0}
    for chunk, ok in ((8, True), (2, False)):
        case = programs.case(intermediate=64, knobs=Knobs(2, chunk, max_splits=2, min_split_rows=16))
        sheet = Sheet(encode(replace(case.program, config={**case.program.config, **one})), random.Random(0))
        for key, place in sheet.find("copy_tape"):
            row = sheet.lanes[key][place]
            row[sheet.column(row, "in_flight")], row[sheet.column(row, "stocked")] = 1, 0
        report = validate(sheet.tables(), case.model, case.gpu)
        assert report.ok is ok, report.text()
        assert ok or {v.rule for v in report.violations} == {6}
        wrong = oracle.judge(sheet.tables(), case.model, oracle.Setup(20), oracle.randomly(random.Random(1)))
        assert wrong == (None if ok else "deadlock")


def _split_down_over_few_units() -> programs.Case:
    """A K-part of down waits for the owners of its inputs only; other SMs may still have to read the one before."""
    knobs = Knobs(2, 8, ring_stages=6, reduce_slots=2, down_split=2, min_split_rows=16, max_splits=3)
    shape = {"hidden": 32, "intermediate": 72, "layers": 3, "heads": 2, "kv_heads": 1, "head_dim": 8}
    make = programs.case.__wrapped__  # not the cached one: the lowering may be a broken one
    return make(**shape, sms=6, max_seq=17, knobs=knobs)


def test_split_of_down_alternates_mailboxes_and_is_accepted() -> None:
    case = _split_down_over_few_units()
    report = validate(case.tables, case.model, case.gpu)
    assert report.ok, report.text()
    assert campaign.trouble(case.tables, case.model, random.Random(1), runs=30) is None


def test_split_of_down_with_one_mailbox_can_hang_and_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mailboxes, "_down_names", lambda _: ["down"])
    case = _split_down_over_few_units()
    report = validate(case.tables, case.model, case.gpu)
    assert {v.rule for v in report.violations} == {4}
    assert "a read of down" in report.violations[0].message
    assert campaign.trouble(case.tables, case.model, random.Random(1), runs=150) is not None
