"""Writes smollm2.json: 64 greedy tokens of every prompt and what the tests need of the logits that chose them.

    python -m tests.reference.make_smollm2 SmolLM2-135M-Instruct.Q4_1.gguf

Deterministic: no sampling, one thread, fp32. Logits of every VOCAB_STEP-th token are kept, in smollm2.npz.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from amk.model.source import open_model
from amk.model.tokenizer import load_tokenizer
from tests.reference.hf import greedy, hf_model, rounded_cache_error
from tests.reference.prompts import prompts

FOLDER = Path(__file__).parent
STEPS = 64
VOCAB_STEP = 384


def make(gguf: Path) -> None:
    """Write both files."""
    import torch
    import transformers

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model, tokenizer = open_model(gguf), load_tokenizer(gguf)
    hf = hf_model(model)
    entries: dict[str, Any] = {}
    samples: dict[str, Any] = {}
    for prompt in prompts():
        ids = prompt.ids(tokenizer)
        tokens, logits = greedy(hf, ids, STEPS)
        top = logits.topk(2).values
        margins = [round(float(first - second), 5) for first, second in top]
        floor = rounded_cache_error(hf, ids, tokens, logits)
        entries[prompt.name] = {"prompt": ids, "tokens": tokens, "margins": margins, "rounded_error": floor}
        samples[prompt.name] = logits[:, ::VOCAB_STEP].numpy()
        print(f"{prompt.name}: {len(ids)} tokens, {tokenizer.decode(tokens)[:60]!r}")
    head = {
        "made_by": "tests/reference/make_smollm2.py",
        "checkpoint": {"file": gguf.name, "digest": model.checkpoint.digest},
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__},
        "vocab_step": VOCAB_STEP,
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items()]
    text = json.dumps(head, indent=1)[:-2] + ',\n "prompts": {\n' + ",\n".join(lines) + "\n }\n}\n"
    (FOLDER / "smollm2.json").write_text(text, encoding="utf-8")
    np.savez_compressed(FOLDER / "smollm2.npz", **samples)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
