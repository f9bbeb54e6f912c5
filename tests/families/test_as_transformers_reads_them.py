"""Odd and old config files mean what transformers makes of them: its own, complete form is the right answer."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from amk.errors import UnsupportedModelError
from amk.model.graph import ModelGraph
from amk.model.walker import walk
from tests.families.cases import CASES, LLAMA3, WINDOW, YARN, Case
from tests.families.models import transformers_config

Config = dict[str, Any]

FAMILY_CASES = list({case.class_name: name for name, case in reversed(CASES.items())}.values())
"""The first case of each family."""
SMALL = {"num_attention_heads": 160, "hidden_size": 320, "num_hidden_layers": 4}  # any default number of K/V heads fits
REQUIRED = {"vocab_size", "intermediate_size", "architectures", "model_type", *SMALL}


def written(case: Case) -> Config:
    """The config that transformers writes."""
    config: Config = transformers_config(case).to_dict()
    return config | {"architectures": [case.class_name]}


def as_transformers_reads(config: Config, case: Case) -> Config | None:
    """The config with everything in it that transformers adds, or None where it refuses it."""
    import transformers
    from huggingface_hub.errors import StrictDataclassError

    kind = getattr(transformers, case.config_name)
    try:
        full: Config = kind.from_dict(copy.deepcopy(config)).to_dict()
    except (StrictDataclassError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return None
    return full | {"architectures": config["architectures"]}


def changed(config: Config, changes: Config) -> Config:
    """The config with some fields set; a field set to ... is removed."""
    return {name: value for name, value in (config | changes).items() if value is not ...}


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_fields_that_are_left_out(name: str) -> None:
    case = CASES[name]
    config = {**written(case), **SMALL, "num_key_value_heads": 2, "head_dim": 16, "layer_types": None}
    config = as_transformers_reads(changed(config, {"no_rope_layers": ...}), case) or {}
    for field in sorted(set(config) - REQUIRED):
        without = {key: value for key, value in config.items() if key != field}
        full = as_transformers_reads(without, case)
        assert full is None or walk(without) == walk(full), field


OLD_YARN = {key: value for key, value in YARN.items() if key not in ("rope_type", "rope_theta")} | {"type": "yarn"}
OLD_LLAMA3 = {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
OLD: dict[str, Config] = {
    "no head_dim": {"head_dim": ...},
    "null head_dim": {"head_dim": None},
    "null K/V heads": {"num_key_value_heads": None},
    "old theta": {"rope_theta": 12345.0, "rope_parameters": ...},
    "old theta, no scaling": {"rope_theta": 12345.0, "rope_scaling": None, "rope_parameters": ...},
    "nothing of rope": {"rope_parameters": ...},
    "null rope": {"rope_parameters": None, "rope_scaling": None},
    "empty scaling": {"rope_scaling": {}, "rope_parameters": ...},
    "null theta": {"rope_theta": None, "rope_parameters": ...},
    "null partial": {"partial_rotary_factor": None, "rope_parameters": ...},
    "old yarn": {"rope_theta": 12345.0, "rope_scaling": OLD_YARN, "rope_parameters": ...},
    "both yarn": {"rope_theta": 12345.0, "rope_scaling": OLD_YARN | {"rope_type": "yarn"}, "rope_parameters": ...},
    "old llama3": {"rope_theta": 12345.0, "rope_scaling": OLD_LLAMA3, "rope_parameters": ...},
    "length beside": {
        "original_max_position_embeddings": 32, "rope_scaling": {"rope_type": "yarn", "factor": 2.0},
        "rope_parameters": ...,
    },
    "theta beside": {"rope_theta": 5.0, "rope_parameters": {"rope_type": "default", "rope_theta": 777.0}},
    "theta outside": {"rope_theta": 5.0, "rope_parameters": {"rope_type": "default"}},
    "torch_dtype": {"torch_dtype": "bfloat16", "dtype": ...},
    "no window": {"sliding_window": None},
    "no window to use": {"sliding_window": None, "use_sliding_window": True, "layer_types": ...},
    "window not used": {"sliding_window": WINDOW, "use_sliding_window": False, "layer_types": ...},
    "window used": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1, "layer_types": ...},
    "null layer_types": {"layer_types": None},
    "sliding layers": {"layer_types": ["sliding_attention"] * 4, "sliding_window": WINDOW, "use_sliding_window": True},
    "full layers": {"layer_types": ["full_attention"] * 4},
    "swish": {"hidden_act": "swish"},
    "noted pattern": {"_sliding_window_pattern": 3, "layer_types": ...},
    "pattern": {"sliding_window_pattern": 3, "layer_types": ...},
    "by layer type": {
        "rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 88.0}},
    },
    "full ones only": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 77.0}}},
    "null for sliding ones": {"rope_parameters": {"full_attention": YARN, "sliding_attention": None}},
    "one for all": {"rope_parameters": {"rope_type": "linear", "rope_theta": 777.0, "factor": 2.0}},
    "both styles": {
        "rope_scaling": {"rope_type": "linear", "factor": 3.0},
        "rope_parameters": {"full_attention": {"rope_type": "default"}, "sliding_attention": {"rope_type": "default"}},
    },
    "local base": {"rope_theta": 12345.0, "rope_local_base_freq": 99.0, "rope_parameters": ...},
    "scaled, local base": {
        "rope_theta": 12345.0, "rope_local_base_freq": 99.0, "rope_parameters": ...,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_old_and_odd_configs(name: str) -> None:
    """amk may refuse what transformers accepts, but what it accepts it understands in the same way."""
    case = CASES[name]
    for what, changes in OLD.items():
        config = changed(written(case), changes)
        full = as_transformers_reads(config, case)
        ours = walk_or_none(config)
        if full is not None and ours is not None and understood(what, name):
            assert ours == walk(full), what


def understood(what: str, name: str) -> bool:
    """Whether transformers' answer counts: where layer types have their own rope, it drops the old key "type" and
    keeps a null base, which it then cannot use."""
    return what not in ("old yarn", "null theta") or name not in ("gemma3", "olmo3")


def walk_or_none(config: Config) -> ModelGraph | None:
    """The graph, or None where amk refuses the config."""
    try:
        return walk(config)
    except UnsupportedModelError:
        return None


@pytest.mark.parametrize("name", FAMILY_CASES)
def test_ordinary_configs_are_not_refused(name: str) -> None:
    case = CASES[name]
    for what in ("old theta", "old theta, no scaling", "nothing of rope", "null theta", "torch_dtype", "full layers"):
        config = changed(written(case), OLD[what])
        assert walk_or_none(config) is not None or as_transformers_reads(config, case) is None, what
