"""`amk build`: from a checkpoint to an artifact."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

import amk
from amk.cli.options import debug_option, json_option
from amk.progress import ConsoleProgress


@click.command()
@click.argument("model")
@click.option("--gpu", default="auto", show_default=True, metavar="NAME|auto", help="GPU to build for.")
@click.option(
    "--max-seq",
    type=click.IntRange(min=1),
    metavar="N",
    help="Longest sequence [default: the model's, at most 8192].",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Artifact folder [default: by the model].")
@click.option("--kv-dtype", type=click.Choice(["fp16", "bf16", "fp32"]), default="fp16", show_default=True)
@click.option("--random-weights", type=click.IntRange(min=0), metavar="SEED", help="Weights from a seed, not a file.")
@click.option("--tuned/--no-tuned", default=True, show_default=True, help="Knobs measured for this GPU and shape.")
@click.option("--force", is_flag=True, help="Build again even if DIR holds an artifact.")
@json_option
@debug_option
def build(
    model: str,
    gpu: str,
    max_seq: int | None,
    out: Path | None,
    kv_dtype: str,
    random_weights: int | None,
    tuned: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Build MODEL: a folder with config.json and safetensors, a hub id, or a .gguf file.

    The artifact refers to the checkpoint and holds no weights. Building needs no GPU when --gpu names one.
    """
    started = time.monotonic()
    artifact = amk.build(
        model,
        gpu=gpu,
        max_seq=max_seq,
        out=out,
        kv_dtype=kv_dtype,
        random_weights=random_weights,
        tuned=tuned,
        force=force,
        progress=ConsoleProgress(),
    )
    seconds = time.monotonic() - started
    manifest = json.loads((artifact.path / "manifest.json").read_text(encoding="utf-8"))
    if as_json:
        click.echo(json.dumps({"path": str(artifact.path), "seconds": round(seconds, 3), "manifest": manifest}))
        return
    from amk.tuned import describe

    if (evidence := manifest.get("build", {}).get("tuned")) is not None:
        click.echo(f"Schedule: tuned, {describe(evidence)} (--no-tuned for the default)")
    click.echo(f"{artifact.path}: ready in {seconds:.1f} s; try: amk generate {artifact.path} --prompt 'Hello'")
