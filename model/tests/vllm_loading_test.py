"""What vLLM refuses to load, by name; the checked stream of tensors; and the plugin."""

import subprocess
import sys

import pytest
import torch
from asynct_model.checkpoint import WEIGHTS_FILE, expected_tensors
from asynct_model.vllm_layers import heads_per_rank
from asynct_model.vllm_weights import checked
from random_checkpoint import random_config, random_tensors, save_checkpoint
from vllm_engine import engine


@pytest.mark.parametrize(
    "name, shape",
    [
        ("model.layers.1.self_attn.k_proj.weight", None),  # its neighbours in qkv_proj are there
        ("model.layers.0.post_attn_layernorm.gamma", None),
        ("lm_head.weight", (512, 128)),  # the embeddings are tied
        ("model.layers.0.self_attn.o_norm.alpha", (128,)),
        ("model.layers.2.self_attn.sigma", (8,)),
        ("model.layers.2.mlp.up_proj.weight", (300, 128)),  # a loader could cut off the rest
    ],
)
def test_wrong_tensor_is_refused_by_name(name, shape, tmp_path, seed):
    """The tensor is left out, or is in the checkpoint in that shape."""
    config = random_config()
    tensors = random_tensors(config, seed)
    tensors.pop(name, None)
    if shape is not None:
        tensors[name] = torch.zeros(shape)
    checkpoint = save_checkpoint(tmp_path / "checkpoint", config, tensors)
    with pytest.raises(ValueError, match=name), engine(checkpoint):
        pass


def test_cut_file_is_refused_by_name(tmp_path, seed):
    config = random_config()
    checkpoint = save_checkpoint(tmp_path / "checkpoint", config, random_tensors(config, seed))
    file = checkpoint / WEIGHTS_FILE
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ValueError, match=f"{file} is cut short"), engine(checkpoint):
        pass


def test_heads_that_do_not_divide_are_refused(tmp_path):
    random_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="attention heads.*tensor parallel"):
        with engine(tmp_path, tensor_parallel_size=3, load_format="dummy"):
            pass


@pytest.mark.parametrize(
    "heads, kv_heads, ranks, expected",
    [(8, 4, 1, (8, 4)), (8, 4, 2, (4, 2)), (8, 4, 8, (1, 1)), (12, 2, 4, (3, 1))],
)
def test_heads_per_rank(heads, kv_heads, ranks, expected):
    assert heads_per_rank(heads, kv_heads, ranks) == expected


@pytest.mark.parametrize(
    "heads, kv_heads, ranks, named",
    [(8, 4, 3, "num_attention_heads=8"), (12, 6, 4, "num_key_value_heads=6")],
)
def test_heads_per_rank_refuses_what_does_not_divide(heads, kv_heads, ranks, named):
    with pytest.raises(ValueError, match=f"{named}.*tensor_parallel_size={ranks}"):
        heads_per_rank(heads, kv_heads, ranks)


def _passed_on(tensors, quantised):
    """The names of the tensors that reach the loader."""
    stream = checked(tensors.items(), random_config(), source="there", quantised=quantised)
    return {name for name, _ in stream}


def test_checked_passes_a_right_checkpoint_on(seed):
    tensors = random_tensors(random_config(), seed)
    for quantised in (False, True):
        assert _passed_on(tensors, quantised) == tensors.keys()


def test_scales_are_for_quantised_checkpoints_only(seed):
    tensors = random_tensors(random_config(), seed)
    scale = "model.layers.0.self_attn.q_proj.weight_scale"
    tensors |= {scale: torch.ones(128, 1), "model.layers.0.self_attn.k_scale": torch.ones(1)}
    assert _passed_on(tensors, quantised=True) == tensors.keys()
    with pytest.raises(ValueError, match=scale):
        _passed_on(tensors, quantised=False)


def test_quantised_checkpoint_may_pack_its_matrices_and_nothing_else(seed):
    tensors = random_tensors(random_config(), seed)
    weight, vector = "model.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.alpha"
    tensors["model.layers.0.mlp.up_proj.qweight"] = tensors.pop(weight)[:, :16]
    assert _passed_on(tensors, quantised=True) == tensors.keys()
    with pytest.raises(ValueError, match=weight):
        _passed_on(tensors, quantised=False)
    del tensors["model.layers.0.mlp.up_proj.qweight"]
    with pytest.raises(ValueError, match=f"missing: {weight}"):
        _passed_on(tensors, quantised=True)
    tensors[vector] = torch.ones(3)
    with pytest.raises(ValueError, match=vector):
        _passed_on(tensors, quantised=True)


def test_misfits_are_kept_back_from_the_loader(seed):
    config = random_config()
    tensors = random_tensors(config, seed)
    tensors["extra"] = torch.ones(1)
    tensors["model.norm.alpha"] = torch.ones(3)
    passed = []
    with pytest.raises(ValueError, match="extra.*model.norm.alpha"):
        for name, _ in checked(tensors.items(), config, source="there", quantised=False):
            passed.append(name)
    assert set(passed) == expected_tensors(config).keys() - {"model.norm.alpha"}


def test_plugin_registers_twice_by_name_only():
    program = """
import sys
from asynct_model.plugin import register
register()
register()
import torch
from transformers import AutoConfig
from vllm import ModelRegistry
from vllm.v1.attention.backends.registry import AttentionBackendEnum
assert "AsyncTForCausalLM" in ModelRegistry.get_supported_archs()
assert AutoConfig.for_model("asynct").model_type == "asynct"
assert AttentionBackendEnum.CUSTOM.get_path() == "asynct_vllm.backend.AsyncTBackend"
assert not torch.cuda.is_initialized()
assert "asynct_model.vllm_model" not in sys.modules
assert AttentionBackendEnum.CUSTOM.get_class().get_name() == "CUSTOM"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
