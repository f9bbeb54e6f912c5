"""What every field of a config.json means to amk: read, pinned to some values, harmless, or refused.

A field that is in none of the tables below, and that the family does not read, may change the computation, so
`check_fields` refuses it. Field meanings follow transformers' `LlamaConfig` and `PreTrainedConfig`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Set
from typing import Any

from amk.errors import UnsupportedModelError

Config = Mapping[str, Any]

# Read for every family by the walker (sizes, norms, head) or by rope_config (the rope_* fields).
_SIZES = """vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
    max_position_embeddings"""
_SHAPE = """architectures model_type hidden_act rms_norm_eps tie_word_embeddings eos_token_id"""
_ROPE = "rope_theta rope_scaling rope_parameters partial_rotary_factor original_max_position_embeddings"
READ_FIELDS = frozenset(" ".join((_SIZES, _SHAPE, _ROPE)).split())

# Fields that some family uses to change the computation, with the values that change nothing. A family that
# implements one reads it, which goes before this table.
PINNED_FIELDS: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "lm_head_bias": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "per_layer_config": ({}, None),
    "sliding_window": (None,),
    "use_sliding_window": (False, None),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "logit_scale": (1, None),
    "embedding_multiplier": (1, None),
    "residual_multiplier": (1, None),
    "logits_scaling": (1, None),
    "attention_multiplier": (None,),
    "use_bidirectional_attention": (False, None),
    "full_attn_mod": (1, None),
    "interpolate_factor": (1, None),
    "query_pre_attn_scalar": (None,),
    "hidden_activation": (None,),
    "qkv_bias": (False, None),
    "use_qk_norm": (False, None),
    "qk_layernorm": (False, None),
    "rope_interleaved": (False, None),
    "use_mrope": (False, None),
    "num_experts": (0, None),
    "num_local_experts": (0, None),
    "n_routed_experts": (0, None),
    "no_rope_layers": (None,),
}

# Fields that cannot change what a decode step computes, by the reason why.
_TRAINING_ONLY = """attention_dropout hidden_dropout resid_pdrop embd_pdrop attn_pdrop dropout initializer_range
    gradient_checkpointing residual_dropout use_cache output_router_logits label_smoothing router_aux_loss_coef"""
_SAME_RESULT = """pretraining_tp chunk_size_feed_forward torch_dtype dtype use_bfloat16 torchscript is_decoder
    tie_encoder_decoder _attn_implementation attn_implementation _attn_implementation_autoset _flash_attn_2_enabled
    _experts_implementation is_llama_config pad_vocab_size_multiple max_sequence_length tie_last_hidden_states
    cache_implementation"""
_OUTPUTS_AND_TASKS = """output_attentions output_hidden_states return_dict return_dict_in_generate output_scores
    problem_type id2label label2id num_labels task_specific_params finetuning_task tf_legacy_loss"""
_PROVENANCE = """transformers_version _name_or_path name_or_path _commit_hash transformers.js_config unsloth_version
    unsloth_fixed model_name language license"""
_TOKENIZER = """bos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id tokenizer_class prefix
    forced_bos_token_id forced_eos_token_id"""
# Old config files carry sampling settings; amk decodes greedily, and transformers ignores them there too.
_SAMPLING = """max_length max_new_tokens min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences remove_invalid_values
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens"""
HARMLESS_FIELDS = frozenset(
    " ".join((_TRAINING_ONLY, _SAME_RESULT, _OUTPUTS_AND_TASKS, _PROVENANCE, _TOKENIZER, _SAMPLING)).split()
)


def check_fields(config: Config, reads: Set[str] = frozenset(), own_code: Set[str] = frozenset()) -> None:
    """Refuse every field whose effect amk does not implement. Raises UnsupportedModelError naming field and value.

    `reads` are the fields that the family reads besides READ_FIELDS, `own_code` the classes in `auto_map` that
    transformers has of its own by now.
    """
    for name, value in config.items():
        if name in READ_FIELDS or name in reads or name in HARMLESS_FIELDS:
            continue
        if name in PINNED_FIELDS:
            _check_pinned(name, value)
        elif name == "auto_map":
            _check_code(value, own_code)
        else:
            _check_other(name, value)


def _check_pinned(name: str, value: Any) -> None:
    allowed = PINNED_FIELDS[name]
    if not any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in allowed):
        raise refused_value(name, value, " or ".join(show(choice) for choice in allowed))


_NOT_THE_MODEL = ("AutoTokenizer", "AutoProcessor")


def _check_code(auto_map: Any, own_code: Set[str]) -> None:
    named = auto_map.items() if isinstance(auto_map, dict) else [("", auto_map)] if auto_map else []
    classes = {str(name).rpartition("--")[2] for key, name in named if key not in _NOT_THE_MODEL}
    if classes - own_code:
        raise UnsupportedModelError(
            f"config.json: auto_map = {show(auto_map)}: the model comes with its own Python code, which amk never "
            "runs; use a checkpoint that transformers loads without trust_remote_code"
        )


def _check_other(name: str, value: Any) -> None:
    """The fields with a rule of their own; anything that reaches the end is unknown."""
    if name in ("quantization_config", "quantization", "compression_config"):
        if value is not None:
            raise UnsupportedModelError(
                f"config.json: {name} = {show(value)}: quantised safetensors are not supported; "
                "use the bf16, fp16 or fp32 checkpoint, or a GGUF file"
            )
    elif name == "layer_types":
        full = isinstance(value, list | tuple) and all(kind == "full_attention" for kind in value)
        if value is not None and not full:
            raise refused_value(name, value, 'null or all "full_attention"')
    else:
        raise UnsupportedModelError(
            f"config.json: {name} = {show(value)} is a field that amk does not know, so it may change what the model "
            "computes; if it does not, remove it from config.json"
        )


def refused_value(name: str, value: Any, supported: str) -> UnsupportedModelError:
    """The error for a known field at a value that amk does not implement."""
    return UnsupportedModelError(f"config.json: {name} = {show(value)} is not supported; supported: {supported}")


def show(value: Any) -> str:
    """A config value on one short line."""
    text = "null" if value is None else f'"{value}"' if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


LARGEST = 2**31 - 1
"""No size of a model is larger; what a damaged file holds in its place may be."""


def read_int(config: Config, name: str, default: int | None = None, most: int = LARGEST) -> int:
    """A positive integer field, at `most` so large; `default` where it is absent or null.

    Raises UnsupportedModelError.
    """
    value = config.get(name)
    if value is None:
        if default is None:
            raise UnsupportedModelError(f"config.json: {name} is missing; add it (a positive integer)")
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
        limit = "" if most == LARGEST else f" up to {most}"
        raise refused_value(name, value, f"a positive integer{limit}")
    return value


def read_float(config: Config, name: str, default: float | None = None) -> float:
    """A positive finite number; `default` where it is absent or null. Raises UnsupportedModelError."""
    value = config.get(name)
    if value is None:
        if default is None:
            raise UnsupportedModelError(f"config.json: {name} is missing; add it (a positive number)")
        return default
    if not _is_number(value) or value <= 0:
        raise refused_value(name, value, "a positive number")
    return float(value)


def read_number(config: Config, name: str, default: float) -> float:
    """A finite number that may be 0; `default` where it is absent or null. Raises UnsupportedModelError."""
    value = config.get(name)
    if value is None:
        return default
    if not _is_number(value) or value < 0:
        raise refused_value(name, value, "a number, not below 0")
    return float(value)


def _is_number(value: Any) -> bool:
    """Whether a value is a number, finite as a float; JSON's integers may not be."""
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) <= sys.float_info.max


def read_bool(config: Config, name: str, default: bool) -> bool:
    """A boolean field; `default` where it is absent or null. Raises UnsupportedModelError."""
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise refused_value(name, value, "true or false")
    return value
