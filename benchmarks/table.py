#!/usr/bin/env python3
"""Makes the README's table from benchmarks/h200/*.json, and says which targets they reach.

    scripts/bench_table            rewrite the table between the markers in README.md, print the targets
    scripts/bench_table --check    change nothing; exit with 1 if the table in README.md is not that of the results

The markers are lines of their own: <!-- bench:begin --> and <!-- bench:end -->. Baselines that a run did not get to are
those of RESULTS/baselines/*.json, earlier runs on a GPU of the same model with the same driver and torch, and marked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "h200"
EARLIER = "†"
"""Marks the baseline of an earlier run."""

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

Result = dict[str, Any]


def main() -> None:
    """Table and targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    results = with_earlier_baselines(load(options.results), options.results / "baselines")
    old = options.readme.read_text(encoding="utf-8")
    new = replaced(old, table(results), options.readme.name)
    if options.check:
        sys.exit(
            None
            if new == old
            else f"{options.readme.name}: the table is not that of the results; run scripts/bench_table"
        )
    if new != old:
        options.readme.write_text(new, encoding="utf-8")
    targets = json.loads((ROOT / "benchmarks" / "targets.json").read_text(encoding="utf-8"))
    for line in target_lines(results, targets):
        print(line)


def load(folder: Path) -> dict[str, Result]:
    """Results by shape, the smallest first. Exits where there are none."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}
    if not found:
        sys.exit(f"{folder.name}: no results; make them with benchmarks/run_h200.py on the GPU")
    return dict(sorted(found.items(), key=lambda item: item[1]["model"]["weight_bytes"]))


def with_earlier_baselines(results: dict[str, Result], folder: Path) -> dict[str, Result]:
    """The results; a position without a baseline has that of the folder's run of its shape, if that was measured on the
    same GPU model with the same driver and torch. `earlier_baselines` of such a result is that run's provenance.
    """
    if not folder.is_dir():
        return results
    found, earlier = {}, load(folder)
    for shape, result in results.items():
        other = earlier.get(shape)
        found[shape] = result
        if not other or _platform(other) != _platform(result):
            continue
        known = {row["pos"]: {"baselines": row["baselines"], "earlier": True} for row in other["positions"]}
        rows = [row if row["baselines"] else row | known.get(row["pos"], {}) for row in result["positions"]]
        if rows != result["positions"]:
            found[shape] = result | {"positions": rows, "earlier_baselines": other["provenance"]}
    return found


def _platform(result: Result) -> tuple[str, str, str | None]:
    """What baselines depend on."""
    source = result["provenance"]
    return source["gpu"]["name"], source["gpu"]["driver"], source["packages"].get("torch")


def replaced(text: str, new: str, name: str) -> str:
    """The text with `new` between the markers. Exits where they are missing."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        sys.exit(f"{name}: needs one line {BEGIN} and after it one line {END}")
    return text[: text.index(BEGIN) + len(BEGIN)] + f"\n{new}\n" + text[text.index(END) :]


def table(results: dict[str, Result]) -> str:
    """Markdown: a row per shape and position, and where the numbers are from."""
    header = [
        "shape",
        "position",
        "ms/token",
        "tokens/s",
        "% of read ceiling",
        "J/token",
        "logits error",
        "best baseline",
    ]
    rows = [cells(shape, row) for shape, result in results.items() for row in result["positions"]]
    lines = ["| " + " | ".join(row) + " |" for row in [header, ["---"] + ["---:"] * (len(header) - 1), *rows]]
    return "\n".join([*lines, "", *sources(results)])


def cells(shape: str, row: Result) -> list[str]:
    """One position."""
    error = "not checked" if row["relative_error"] is None else f"{row['relative_error']:.0e}"
    repeat = "" if row["same_logits"] else ", reruns differ"
    energy = "-" if row["joules_per_token"] is None else f"{row['joules_per_token']:.2f}"
    speed = [f"{row['ms']:.3f}", f"{row['tokens_per_second']:,.0f}", f"{row['ceiling_percent']:.0f}"]
    best = best_baseline(row)
    rival = "-" if best is None else f"{best[1]:.2f} ms ({best[0]}), {best[1] / row['ms']:.2f}x"
    rival += EARLIER * (best is not None and "earlier" in row)
    return [shape, f"{row['pos']:,}", *speed, energy, error + repeat, rival]


def best_baseline(row: Result) -> tuple[str, float] | None:
    """(method, ms) of the fastest baseline at a position."""
    found = {method: one["ms"] for method, one in row["baselines"].items()}
    return min(found.items(), key=lambda item: item[1]) if found else None


def sources(results: dict[str, Result]) -> list[str]:
    """What the table was measured on; one line for all results that agree."""
    lines = []
    for result in results.values():
        source, gpu = result["provenance"], result["provenance"]["gpu"]
        steps = result["positions"][0]["steps"]
        how = f"median over launches of {steps} tokens from the position, ceiling measured in the same run"
        torch = source["packages"].get("torch", "-")
        commit = source.get("commit") or "unknown"
        made = f"{source['time'][:10]}, commit {commit[:7]}{'+' if commit.endswith('+') else ''}"
        where = f"{gpu['name']}, driver {gpu['driver']}, torch {torch}, {made}"
        lines.append(f"Random weights, batch 1, K/V {result['model']['kv_dtype']}, {how}; {where}.")
    for result in results.values():
        if earlier := result.get("earlier_baselines"):
            made = f"{earlier['time'][:10]}, commit {(earlier.get('commit') or 'unknown')[:7]}"
            lines.append(f"{EARLIER} baseline of an earlier run, same GPU model, driver and torch: {made}.")
    return list(dict.fromkeys(lines))


def target_lines(results: dict[str, Result], targets: Result) -> Iterator[str]:
    """One line per target: reached, missed or not measured."""
    for shape, result in results.items():
        for row in result["positions"]:
            yield from position_targets(shape, row, targets)
        yield from shape_targets(shape, result, targets)


def position_targets(shape: str, row: Result, targets: Result) -> Iterator[str]:
    """Targets of one position."""
    pos, name = str(row["pos"]), f"{shape} @{row['pos']}"
    percent = targets["ceiling_percent"].get(shape, {}).get(pos)
    if percent is not None:
        yield verdict(f"{name} percent of ceiling", row["ceiling_percent"], percent, at_least=True)
    ms = targets["ms"].get(shape, {}).get(pos)
    if ms is not None:
        yield verdict(f"{name} ms/token", row["ms"], ms)
    best = best_baseline(row)
    ratio = best[1] / row["ms"] if best else None
    rival = "the best baseline" + " of an earlier run" * ("earlier" in row)
    yield verdict(f"{name} times faster than {rival}", ratio, targets["times_faster_than_baselines"], True)
    yield verdict(f"{name} relative error of logits", row["relative_error"], targets["relative_error"])
    yield f"{'reached' if row['same_logits'] and row['same_tokens'] else 'MISSED '}  {name} reruns are bit-identical"


def shape_targets(shape: str, result: Result, targets: Result) -> Iterator[str]:
    """Targets of loading and building."""
    build = result.get("build", {})
    peak = build.get("peak_bytes")
    measured = {
        "first_token_ms": result["start"]["first_token_seconds"] * 1e3,
        "build_seconds": build.get("seconds"),
        "build_gib": None if peak is None else peak / 2**30,
    }
    for key, value in measured.items():
        if shape in targets[key]:
            yield verdict(f"{shape} {key.replace('_', ' ')}", value, targets[key][shape])


def verdict(name: str, value: float | None, target: float, at_least: bool = False) -> str:
    """A target with what was measured."""
    relation = ">=" if at_least else "<="
    if value is None:
        return f"-        {name}: not measured, target {relation} {target:g}"
    reached = value >= target if at_least else value <= target
    return f"{'reached' if reached else 'MISSED '}  {name}: {value:.3g}, target {relation} {target:g}"


if __name__ == "__main__":
    main()
