"""Malformed tables of any kind yield a report within bounded time, never a traceback."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from schedule_ir import Tables
from schedule_ir.codec import MalformedTablesError, from_json, to_json
from tests.validator import programs
from validator import validate

CASE = programs.case()
ODD: list[Any] = [
    None,
    "",
    "x",
    -1,
    0,
    2**31,
    2**63,
    2**70,
    1e308,
    float("nan"),
    float("inf"),
    True,
    [],
    {},
    [[]],
    {"a": 1},
]


def verdict(tables: Tables) -> None:
    report = validate(tables, CASE.model, CASE.gpu)
    assert report.text()
    json.dumps(report.to_json())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested data."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        found += places(child, (*path, key))
    return found


def put(data: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


PLACES = places(json.loads(to_json(CASE.tables))["header"])


@pytest.mark.parametrize("seed", range(400))
def test_odd_header_values(seed: int) -> None:
    rng = random.Random(seed)
    header = json.loads(to_json(CASE.tables))["header"]
    put(header, rng.choice(PLACES), rng.choice(ODD))
    verdict(Tables(header, CASE.tables.records, CASE.tables.ranges))


@pytest.mark.parametrize("seed", range(100))
def test_lost_header_values(seed: int) -> None:
    rng = random.Random(seed)
    header = json.loads(to_json(CASE.tables))["header"]
    path = rng.choice(PLACES)
    parent = header
    for key in path[:-1]:
        parent = parent[key]
    del parent[path[-1]]
    verdict(Tables(header, CASE.tables.records, CASE.tables.ranges))


@pytest.mark.parametrize("seed", range(200))
def test_random_words(seed: int) -> None:
    rng = np.random.default_rng(seed)
    records, ranges = CASE.tables.records.copy(), CASE.tables.ranges.copy()
    for array in (records, ranges) if seed % 2 else (records,):
        flat = array.reshape(-1)
        where = rng.integers(0, len(flat), 1 + seed % 5)
        flat[where] = rng.integers(-(2**31), 2**31, len(where)) if seed % 3 else rng.integers(-2, 400, len(where))
    verdict(Tables(CASE.tables.header, records, ranges))


@pytest.mark.parametrize(
    "records",
    [
        np.zeros((0, 12), np.int32),
        np.zeros((5, 3), np.int32),
        np.zeros(7, np.int32),
        np.zeros((4, 12), np.float64),
        None,
        "x",
        [],
    ],
)
def test_odd_arrays(records: Any) -> None:
    verdict(Tables(CASE.tables.header, records, CASE.tables.ranges))
    verdict(Tables(CASE.tables.header, CASE.tables.records, records))
    verdict(Tables(records, CASE.tables.records, CASE.tables.ranges))


def test_deeply_nested_header() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    verdict(Tables({**CASE.tables.header, "knobs": deep}, CASE.tables.records, CASE.tables.ranges))


@pytest.mark.parametrize("seed", range(60))
def test_truncated_and_random_text(seed: int) -> None:
    rng = random.Random(seed)
    text = to_json(CASE.tables)
    broken = text[: rng.randrange(len(text))] if seed % 2 else "".join(chr(rng.randrange(32, 1000)) for _ in range(200))
    try:
        tables = from_json(broken)
    except MalformedTablesError:
        return
    verdict(tables)


@pytest.mark.parametrize(
    "name", ["max_splits", "phases", "layers", "kv_heads", "heads", "max_seq", "vocab", "sms", "packets"]
)
def test_huge_counts_are_answered_in_bounded_time(name: str) -> None:
    import time

    header = {**CASE.tables.header, "config": {**CASE.tables.header["config"], name: 2**31 - 1}}
    started = time.monotonic()
    report = validate(Tables(header, CASE.tables.records, CASE.tables.ranges), CASE.model, CASE.gpu)
    assert not report.ok
    assert time.monotonic() - started < 10
