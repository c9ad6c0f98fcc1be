"""AsyncTConfig: presets, round trip, and what it refuses."""

import math
import subprocess
import sys

import pytest
from asynct_model import AsyncTConfig
from asynct_model.checkpoint import expected_tensors
from random_checkpoint import random_config
from transformers import AutoConfig

SPECIFIED = {
    # layers, hidden, heads, kv heads, head_dim, intermediate: the specification's presets
    "asynct-0.6b": (35, 1024, 8, 4, 128, 3072),
    "asynct-1.7b": (28, 2048, 16, 8, 128, 6144),
}


@pytest.mark.parametrize("name", SPECIFIED)
def test_preset_has_the_specified_shape(name):
    config = AsyncTConfig.preset(name)
    shape = (
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
        config.intermediate_size,
    )
    assert shape == SPECIFIED[name]
    assert config.vocab_size == 151936 and config.tie_word_embeddings
    assert config.rope_parameters["rope_theta"] == 1e6


@pytest.mark.parametrize(("name", "billions"), [("asynct-0.6b", 0.6), ("asynct-1.7b", 1.7)])
def test_preset_has_the_parameters_of_its_name(name, billions):
    tensors = expected_tensors(AsyncTConfig.preset(name))
    assert round(sum(map(math.prod, tensors.values())) / 1e9, 1) == billions


def test_preset_takes_overrides_and_refuses_other_names():
    assert AsyncTConfig.preset("asynct-0.6b", num_hidden_layers=2).num_hidden_layers == 2
    with pytest.raises(ValueError, match="'asynct-9b'.*asynct-0.6b"):
        AsyncTConfig.preset("asynct-9b")


def test_defaults_are_the_specifications():
    config = AsyncTConfig()
    assert config.gate_settings == dict(
        scale=None, window=3, weights=None, relu_pre=True, clip=(0.0, 1.0)
    )
    assert config.dyht_clip == (-1.0, 1.0)
    assert config.dyht_sizes("self_attn.q_norm") == (config.head_dim, 1)
    assert config.dyht_sizes("self_attn.k_norm") == (config.head_dim, 1)
    for name in ("input_layernorm", "post_attn_layernorm", "pre_mlp_layernorm", "norm"):
        assert config.dyht_sizes(name) == (config.hidden_size, config.hidden_size)


def test_scalar_dyht_names_single_parameters():
    config = random_config(scalar_dyht=("norm.alpha", "input_layernorm.gamma"))
    assert config.dyht_sizes("norm") == (1, config.hidden_size)
    assert config.dyht_sizes("input_layernorm") == (config.hidden_size, 1)
    assert config.dyht_sizes("self_attn.q_norm") == (config.head_dim, config.head_dim)


def test_file_round_trip_keeps_every_field(tmp_path):
    config = random_config(
        attention_window=4,
        attention_weights=(0.5, 0.25, 0.125, 0.125),
        attention_relu_pre=False,
        attention_clip=(-0.25, 2.0),
        attention_scale=0.125,
        dyht_clip=(-2.0, 1.5),
        scalar_dyht=("norm.gamma",),
        tie_word_embeddings=False,
    )
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, AsyncTConfig)
    assert loaded.gate_settings == config.gate_settings
    kept, given = loaded.to_dict(), config.to_dict()
    for fields in (kept, given):  # not the model's
        fields.pop("_name_or_path")
        fields.pop("transformers_version")
    assert kept == given


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (dict(num_attention_heads=6, num_key_value_heads=4), ValueError, "6.*multiple.*4"),
        (dict(num_key_value_heads=0), ValueError, "num_key_value_heads is 0"),
        (dict(hidden_size="256"), TypeError, "hidden_size"),
        (dict(num_hidden_layers=True), TypeError, "num_hidden_layers"),
        (dict(head_dim=33), ValueError, "head_dim is 33"),
        (dict(hidden_act="silu"), ValueError, "'silu'.*relu"),
        (dict(rope_parameters={"rope_type": "yarn", "factor": 2.0}), ValueError, "yarn"),
        (dict(attention_window=-1), ValueError, "attention_window is -1"),
        (dict(attention_window=0), ValueError, "attention_window is 0"),
        (dict(attention_window=2.5), TypeError, "attention_window"),
        (dict(attention_weights=(0.5, 0.5)), ValueError, "attention_weights.*3"),
        (dict(attention_weights=(0.5, "a", 0.5)), TypeError, "attention_weights has 'a'"),
        (dict(attention_weights=0.5), TypeError, "attention_weights"),
        (dict(attention_relu_pre=1), TypeError, "attention_relu_pre"),
        (dict(attention_scale="1/64"), TypeError, "attention_scale"),
        (dict(attention_clip=(1.0, 0.0)), ValueError, r"attention_clip is \(1.0, 0.0\)"),
        (dict(attention_clip=(0.0, math.nan)), ValueError, "attention_clip"),
        (dict(attention_clip=(0.0,)), ValueError, "attention_clip.*2"),
        (dict(dyht_clip=(2.0, -2.0)), ValueError, "dyht_clip"),
        (dict(scalar_dyht=("self_attn.v_norm.alpha",)), ValueError, "self_attn.v_norm.alpha"),
        (dict(scalar_dyht="norm.alpha"), TypeError, "scalar_dyht"),
    ],
    ids=str,
)
def test_refuses(fields, error, message):
    with pytest.raises(error, match=message):
        random_config(**fields)


def test_importing_the_model_does_not_import_vllm():
    program = (
        "import sys, asynct_model, transformers;"
        "assert 'vllm' not in sys.modules;"
        "assert type(transformers.AutoConfig.for_model('asynct')).__name__ == 'AsyncTConfig'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
