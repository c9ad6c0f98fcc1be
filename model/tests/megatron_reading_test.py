"""Checkpoints as Megatron writes them: pipelines, other names, and all that is not weights."""

import enum
import io
import sys
import types

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from asynct_model.megatron import unpickling
from asynct_model.megatron.convert import to_huggingface
from megatron_by_hand import (
    arguments,
    assert_same,
    load_tensors,
    megatron_config,
    mixed_tensors,
    save_plain,
    shards,
    stack_layers,
)


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def config(request):
    return megatron_config(tie_word_embeddings=request.param)


@pytest.fixture
def tensors(config, seed):
    return mixed_tensors(config, seed)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_plain(config, tensors, ranks, stages, tmp_path):
    by_rank = shards(config, tensors, ranks)
    if config.tie_word_embeddings and stages > 1:  # a last stage has a copy
        for shard in by_rank:
            shard["output_layer.weight"] = shard["embedding.word_embeddings.weight"]
    source = save_plain(tmp_path / "source", config, by_rank, stages)
    summary = to_huggingface(source, tmp_path / "output")
    assert_same(load_tensors(tmp_path / "output"), tensors)
    assert summary.padding == 6
    assert summary.config.dtype == torch.bfloat16


def _save_dist(directory, config, state):
    dcp.save(state, checkpoint_id=directory, no_dist=True)
    common = dict(args=arguments(config), checkpoint_version=3.0, iteration=300)
    torch.save(common, directory / "common.pt")
    return directory


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("halves", [True, False])
def test_distributed(config, tensors, stacked, halves, tmp_path):
    (state,) = shards(config, tensors, 1)
    if halves:
        for name in [name for name in state if name.endswith("linear_fc1.weight")]:
            state[f"{name}_v"], state[f"{name}_w"] = reversed(state.pop(name).chunk(2))
    if stacked:
        state = stack_layers(state)
    state["optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight"] = torch.ones(7)
    state["chained_0.optimizer.state.exp_avg.embedding"] = torch.ones(7)
    state["rng_state/shard_0_1"] = io.BytesIO(b"state")
    state["decoder.layers.mlp.linear_fc1._extra_state/shard_0_3"] = io.BytesIO(b"state")
    source = _save_dist(tmp_path / "source", config, state)
    to_huggingface(source, tmp_path / "output")
    assert_same(load_tensors(tmp_path / "output"), tensors)


def test_chunks_in_any_order(config, tensors, tmp_path):
    (state,) = shards(config, tensors, 1)
    source = _save_dist(tmp_path / "source", config, dict(reversed(stack_layers(state).items())))
    to_huggingface(source, tmp_path / "output")
    assert_same(load_tensors(tmp_path / "output"), tensors)


def test_other_names(config, tensors, tmp_path):
    renames = {
        "input_layernorm.gamma": "self_attention.linear_qkv.layer_norm_weight",
        "input_layernorm.alpha": "self_attention.linear_qkv.layer_norm_alpha",
        "pre_mlp_layernorm.gamma": "mlp.linear_fc1.layer_norm_weight",
        "post_attn_layernorm.gamma": "post_self_attn_layernorm.weight",
        "q_layernorm.gamma": "q_layernorm.weight",
        "core_attention.sigma": "sigma",
        "final_layernorm.gamma": "final_layernorm.weight",
    }
    by_rank = [{} for _ in range(2)]
    for renamed, shard in zip(by_rank, shards(config, tensors, 2)):
        for name, tensor in shard.items():
            for first, other in renames.items():
                name = name.replace(first, other)
            renamed[name] = tensor
    source = save_plain(tmp_path / "source", config, by_rank)
    to_huggingface(source, tmp_path / "output")
    assert_same(load_tensors(tmp_path / "output"), tensors)


@pytest.fixture
def absent_enum():
    """An enumeration of a module that is gone when the checkpoint is read."""
    module = types.ModuleType("megatron_enums")
    module.Backend = enum.Enum("Backend", ["fused"], module="megatron_enums")
    sys.modules["megatron_enums"] = module
    yield module.Backend.fused
    sys.modules.pop("megatron_enums", None)


def test_other_contents_of_plain_files(config, tensors, absent_enum, tmp_path):
    extra = dict(
        optimizer=dict(state={0: torch.ones(3)}, backend=absent_enum),
        rng_state=[dict(np_rng_state=np.random.get_state(), cuda=torch.ones(2))],
    )
    by_rank = shards(config, tensors, 2)
    for shard in by_rank:
        shard["decoder.layers.0.mlp.linear_fc1._extra_state"] = io.BytesIO(b"state")
    source = save_plain(tmp_path / "source", config, by_rank, extra=extra)
    del sys.modules["megatron_enums"]
    to_huggingface(source, tmp_path / "output")
    assert_same(load_tensors(tmp_path / "output"), tensors)


class _Touch:
    """A pickle of this would create a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_pickles_run_nothing(tmp_path):
    torch.save(dict(args=_Touch(tmp_path / "touched")), tmp_path / "common.pt")
    loaded = unpickling.load(tmp_path / "common.pt")
    assert isinstance(loaded["args"], unpickling.Unknown)
    assert not (tmp_path / "touched").exists()


def test_a_configuration_given_holds_and_differences_are_told(tmp_path, seed):
    config = megatron_config()
    tensors = mixed_tensors(config, seed)
    source = save_plain(tmp_path / "source", config, shards(config, tensors, 1))
    given = megatron_config(vocab_size=240, attention_window=5, eos_token_id=7)
    summary = to_huggingface(source, tmp_path / "output", given)
    assert summary.notes == ["vocab_size is 240 as given, not the checkpoint's vocab_size, 250"]
    assert summary.config.attention_window == 5
    assert given.dtype != torch.bfloat16
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:240]
    assert_same(load_tensors(tmp_path / "output"), tensors)


def test_no_arguments_need_a_configuration(tmp_path, seed):
    config = megatron_config()
    tensors = mixed_tensors(config, seed)
    (state,) = shards(config, tensors, 1)
    source = _save_dist(tmp_path / "source", config, state)
    (source / "common.pt").unlink()
    with pytest.raises(ValueError, match="needs a configuration"):
        to_huggingface(source, tmp_path / "output")
    to_huggingface(source, tmp_path / "output", config)
    assert_same(load_tensors(tmp_path / "output"), tensors)
