"""The text of a schedule: the facts are there, and the integers of tasks mean what they should."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from amk.errors import UsageError
from amk.gpus import lookup
from amk.lower import Knobs, lower
from amk.schedule_lanes import TaskReader, lane_lines
from amk.schedule_text import describe
from schedule_ir import Program, Task, encode
from schedule_ir.codec import to_json
from schedule_ir.op import Lane
from tests.bench.fakes import graph, program
from tests.cli.conftest import Run, run  # noqa: F401 - a fixture

PARTS = ("Shared memory of an SM", "Mailboxes", "Weights", "Op variants", "SMs", "Predicted")


@pytest.fixture(scope="module")
def made() -> Program:
    return program()


@pytest.fixture(scope="module")
def text(made: Program) -> str:
    return describe(made)


def section(text: str, title: str) -> list[str]:
    """The lines under a title, without the header of the table."""
    (part,) = (part for part in text.split("\n\n") if part.startswith(title))
    return part.splitlines()[2:]


def test_parts(text: str) -> None:
    titles = [part.splitlines()[0] for part in text.split("\n\n")[1:]]
    assert [next(part for part in PARTS if title.startswith(part)) for title in titles] == list(PARTS)
    assert text.startswith("h200 (sm_90, sm90 code path): 32 of 132 SMs, 4.59 TB/s\n2 layers, hidden 64")


def test_mailboxes_name_both_sides(text: str) -> None:
    rows = {line.split()[2]: line for line in section(text, "Mailboxes")}
    assert "publish (64 tasks on 32 SMs, 512 packets)" in rows["mlp"]
    assert "gather (8 tasks on 8 SMs, 2048 packets)" in rows["mlp"]
    assert "combine (8 tasks" in rows["partial"]
    assert "kv_acquire (32 tasks" in rows["kv_released"]
    assert set(rows) == {"qkv", "partial", "attention", "o", "mlp", "down", "best", "kv_released"}


def test_shared_memory_adds_up(made: Program, text: str) -> None:
    rows = [line.split() for line in section(text, "Shared memory")]
    ends = [int(offset) + int(size) for offset, size, *_ in rows]
    assert [int(row[0]) for row in rows] == [0, *ends[:-1]]
    assert ends[-1] == made.config["shared_bytes"]


def test_weights_are_counted_by_kind(text: str) -> None:
    rows = {line.split()[0]: line.split()[1:] for line in section(text, "Weights")}
    assert rows["gate_up"][:4] == ["2", "32", "4", str(32 * 4 * 512)]
    assert list(rows) == ["qkv", "o", "gate_up", "down", "head"]


def test_every_variant_and_every_task_is_counted(made: Program, text: str) -> None:
    rows = [line.split() for line in section(text, "Op variants")]
    assert [int(row[0]) for row in rows] == list(range(len(made.variants)))
    assert sum(int(row[2]) for row in rows) == sum(len(tasks) for tasks in made.lanes.values())


def test_lanes_of_an_sm(made: Program) -> None:
    assert "SM 3, compute lane" not in describe(made)
    both = describe(made, sm=3)
    assert all(f"SM 3, {lane.value} lane" in both for lane in Lane)
    assert "stream lane" not in describe(made, sm=3, lane="compute")


def test_fields_are_decoded(made: Program) -> None:
    stream, compute = (lane_lines(made, 3, lane) for lane in (Lane.STREAM, Lane.COMPUTE))
    assert stream[0].split(maxsplit=2)[2] == "copy_tape<4, 4>  offset 0 (layers.0.qkv unit 3)  in_flight 3  stocked 4"
    everyone = [line for sm in range(made.sms) for line in lane_lines(made, sm, Lane.STREAM)]
    assert any("kv_head 2 (layer 1, head 0)" in line for line in everyone)
    assert any("src kv_released+0  phase 2 (end of token)" in line for line in stream)
    assert any(
        "src down+0  phase 0 (layer 0)  norm 2 (model.layers.1.input_layernorm.weight)" in line for line in compute
    )
    assert any("publish<1, 1, 0, 16>  dst mlp+" in line for line in lane_lines(made, 3, Lane.EPILOGUE))
    assert lane_lines(replace(made, lanes={}), 3, Lane.COMPUTE) == ["  no tasks"]


def test_pieces_and_appends_are_decoded() -> None:
    made = lower(graph(), lookup("h200").as_target(), 1024, knobs=Knobs(down_pieces=3))
    sm = next(tiles for tiles in made.tiles if tiles.name == "layers.0.down.0.2").sms[0]
    stream, compute = (lane_lines(made, sm, lane) for lane in (Lane.STREAM, Lane.COMPUTE))
    assert any("(layers.0.down.0.2 unit 0)" in line for line in stream)
    assert [line.split(maxsplit=2)[2] for line in compute if "gemv_" in line][:3] == [
        "gemv_park<6, 6, 16, 0>  accumulator 0",
        "gemv_park<6, 6, 16, 1>  accumulator 0",
        "gemv_resume<4, 4, 16>  accumulator 0",
    ]  # fmt: skip
    attending = next(sm for sm, *_, task in made.tasks() if made.variants[task.opcode].op == "append")
    appends = [line for line in lane_lines(made, attending, Lane.COMPUTE) if "append" in line]
    assert re.search(r"append<0>  kv_head \d+ \(layer 0, head \d\)  split \d+$", appends[0])
    assert "1, for units that wait for their next piece" in describe(made)


def test_integers_out_of_range_are_shown_as_they_are(made: Program) -> None:
    reader = TaskReader(made, 0)
    copy = next(i for i, variant in enumerate(made.variants) if variant.op == "copy_tape")
    assert reader.text(Task(copy, (99999, 3, 4))).endswith("offset 99999  in_flight 3  stocked 4")
    assert reader.norm(99) == "99"


@pytest.mark.parametrize("choice", [{"sm": 32}, {"sm": -1}, {"lane": "texture"}])
def test_what_there_is_not(made: Program, choice: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        describe(made, **choice)  # type: ignore[arg-type]


def test_inspect_lists_an_sm(run: Run, made: Program, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "tiny.json"
    path.write_text(to_json(encode(made)))
    listed = run("inspect", str(path), "--sm", "3", "--lane", "stream")
    assert listed.exit_code == 0
    assert listed.stdout.rstrip().endswith("copy_tape<4, 4>  offset 12 (head unit 3)  in_flight 5  stocked 8")
    assert run("inspect", str(path), "--lane", "stream").exit_code == 2
    assert "SMs 0 to 31" in run("inspect", str(path), "--sm", "99").stderr
