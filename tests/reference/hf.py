"""The reference: transformers in fp32 on a checkpoint's tensors, the matrices in bf16 as amk reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from amk.model.source import Model

F32 = npt.NDArray[np.float32]


def hf_model(model: Model) -> Any:
    """A LlamaForCausalLM with the weights of `model` (tied head, default rope)."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    graph = model.graph
    config = LlamaConfig(
        vocab_size=graph.vocab, hidden_size=graph.hidden, intermediate_size=graph.intermediate,
        num_hidden_layers=len(graph.layers), num_attention_heads=graph.heads, num_key_value_heads=graph.kv_heads,
        rms_norm_eps=graph.norm_eps, rope_parameters={"rope_type": "default", "rope_theta": graph.rope.theta},
        max_position_embeddings=graph.max_position, tie_word_embeddings=True, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    with torch.device("meta"):
        hf = LlamaForCausalLM(config)
    # Rotary tables are no parameters: the module is made whole again where its weights go.
    hf = hf.to_empty(device="cpu").float()
    hf.model.rotary_emb = type(hf.model.rotary_emb)(config)
    with torch.no_grad():
        for name, value in hf.named_parameters():
            if name != "lm_head.weight":
                value.copy_(_tensor(model, name, value.ndim))
    hf.tie_weights()
    return hf.eval()


def _tensor(model: Model, name: str, ndim: int) -> Any:
    import torch

    if ndim == 1:
        return torch.from_numpy(model.checkpoint.fp32(name).copy())
    return torch.from_numpy(model.checkpoint.bf16(name).view(np.int16).copy()).view(torch.bfloat16)


def greedy(hf: Any, ids: list[int], steps: int) -> tuple[list[int], Any]:
    """(`steps` greedy tokens, the fp32 logits [steps, vocab] that chose them); stop tokens do not stop it."""
    import torch

    given = torch.tensor([ids])
    with torch.no_grad():
        out = hf.generate(
            given, attention_mask=torch.ones_like(given), max_new_tokens=steps, do_sample=False, pad_token_id=0,
            eos_token_id=None, output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
    return out.sequences[0, len(ids) :].tolist(), torch.cat(out.logits)


def rounded_cache_error(hf: Any, ids: list[int], tokens: list[int], expected: Any) -> float:
    """Relative error of the logits that chose `tokens` if nothing but the K/V cache is rounded, to fp16."""
    import torch
    from transformers import DynamicCache

    class Rounded(DynamicCache):  # type: ignore[misc, unused-ignore]
        def update(self, keys: Any, values: Any, *rest: Any, **more: Any) -> Any:
            return super().update(keys.half().float(), values.half().float(), *rest, **more)

    given = torch.tensor([[*ids, *tokens[:-1]]])
    with torch.no_grad():
        logits = hf(given, past_key_values=Rounded(), use_cache=True, logits_to_keep=len(tokens)).logits[0]
    return float((logits - expected).norm() / expected.norm())


def over_cache(hf: Any, ids: list[int], cached: F32, keep: int) -> tuple[F32, F32]:
    """(logits [keep, vocab] of the last ids over a cache given as it is, the rows that transformers computes).

    Both caches are [2, layers, kv_heads, len(ids), head_dim], K (rotated) and V. Every layer attends over `cached`
    instead of its own rows, which are not rounded.
    """
    import torch
    from transformers import DynamicCache

    rows: list[Any] = []

    class Given(DynamicCache):  # type: ignore[misc, unused-ignore]
        def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> Any:
            rows.append(torch.stack([keys[0], values[0]]))
            return tuple(torch.from_numpy(cached[which, layer]).unsqueeze(0) for which in range(2))

    with torch.no_grad():
        given = torch.tensor([ids])
        logits = hf(given, past_key_values=Given(), use_cache=True, logits_to_keep=keep).logits[0]
    return logits.numpy(), torch.stack(rows, 1).numpy()
