"""Tiny models and targets that together use every op, every copy engine and every K/V type."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from amk.lower import Knobs, lower
from amk.model.random_checkpoint import RandomCheckpoint
from amk.model.source import Model
from amk.model.walker import walk
from schedule_ir import Program, Target

TARGETS = {
    "sm80": Target("emulated", "sm_86", "sm80", 3, 99 << 10, 40 << 20, 24 << 30, 9e11),
    "sm90": Target("emulated", "sm_90", "sm90", 3, 227 << 10, 60 << 20, 141 << 30, 4.59e12),
    "sm120": Target("emulated", "sm_120", "sm120", 3, 99 << 10, 96 << 20, 32 << 30, 1.7e12),
}
COMMON: dict[str, Any] = {
    "vocab_size": 203,
    "hidden_size": 72,
    "intermediate_size": 136,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 1e4,
    "bos_token_id": 1,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
SEED = 7
MAX_SEQ = 64


@dataclass(frozen=True)
class Case:
    """A model (architecture, config changes), the code path and size of its GPU, and the knobs of its schedule."""

    shows: str
    path: str = "sm90"
    kv_dtype: str = "fp32"
    architecture: str = "Llama"
    changes: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, int] = field(default_factory=dict)
    sms: int = 4

    def model(self) -> Model:
        """With amk's random weights."""
        named = {"architectures": [f"{self.architecture}ForCausalLM"], "model_type": self.architecture.lower()}
        graph = walk(COMMON | named | self.changes, None)
        return Model(graph, RandomCheckpoint(graph, SEED), Path("random"), "random", None)

    def program(self, model: Model) -> Program:
        """The schedule: two attention splits and more from position 17 on."""
        target = replace(TARGETS[self.path], sms=self.sms)
        knobs = Knobs(**({"compute_warps": 4, "min_split_rows": 16} | self.knobs))
        return lower(model.graph, target, MAX_SEQ, self.kv_dtype, knobs)


CASES = {
    "llama": Case("grouped queries, splits and their merge"),
    "merges": Case(
        "two warps that merge three splits each, of which some are not active; heads that do not fill a warp's pairs",
        changes={"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 96, "head_dim": 80},
        knobs={"compute_warps": 2},
        sms=12,
    ),
    "pieces": Case(
        "down in pieces and K-parts, chunks, biases, six warps, one slot in flight; of gate/up all slots",
        kv_dtype="fp16",
        changes={"mlp_bias": True, "attention_bias": True, "intermediate_size": 300, "vocab_size": 99},
        knobs={
            "down_pieces": 3, "down_split": 2, "chunk_ksteps": 6, "compute_warps": 6, "in_flight": 2,
            "in_flight_low": 1, "bulk_in_flight": 4, "ring_stages": 4, "reduce_slots": 2, "prefetch_chunks": 0,
        },
    ),
    "narrow": Case(
        "units of 8 rows: q/k/v, o, and down in pieces; biases, several chunks, of which some are loaded early",
        changes={
            "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 512,
            "mlp_bias": True, "attention_bias": True, "vocab_size": 99, "num_hidden_layers": 1,
        },
        knobs={"qkv_rows": 8, "o_rows": 8, "down_rows": 8, "down_pieces": 2, "chunk_ksteps": 4, "loaded_tiles": 2},
        sms=3,
    ),
    "bands": Case(
        "rounds of units of 16 rows and the rest in units of 8: q/k/v, o, and down in pieces; biases; limits per copy",
        changes={
            "hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 256,
            "mlp_bias": True, "attention_bias": True, "vocab_size": 99, "num_hidden_layers": 1,
        },
        knobs={"down_pieces": 2, "bulk_in_flight": 1, "bulk_stocked": 3},
        sms=7,
    ),
    "gemma2": Case(
        "norms after, windows, soft caps, tied head, sm120",
        path="sm120",
        kv_dtype="fp16",
        architecture="Gemma2",
        changes={
            "sliding_window": 24, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
        },
    ),
    "exaone4": Case(
        "q/k norm per head, one layer with a window and RoPE and one with neither, tied head, cp.async, bf16 K/V",
        path="sm80",
        kv_dtype="bf16",
        architecture="Exaone4",
        changes={
            "tie_word_embeddings": True, "head_dim": 48, "sliding_window": 24, "sliding_window_pattern": 2,
            "vocab_size": 99,
        },
    ),
    "glm": Case(
        "half of the dims rotated, in neighbouring pairs, fused gate and up, q/k/v biases, a chunk and a rest",
        kv_dtype="fp16",
        architecture="Glm",
        changes={"attention_bias": True, "num_hidden_layers": 1, "vocab_size": 99},
        knobs={"chunk_ksteps": 4},
    ),
    "olmo2": Case(
        "q/k norm over all heads, heads of 144 that warps share, eight warps, cp.async",
        path="sm80",
        architecture="Olmo2",
        changes={"hidden_size": 288, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 144,
                 "intermediate_size": 40, "vocab_size": 99, "num_hidden_layers": 1},
        knobs={"compute_warps": 8},
        sms=2,
    ),
}  # fmt: skip
