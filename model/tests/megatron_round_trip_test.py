"""Hugging Face to Megatron and back, bit for bit, and what is in between."""

import pytest
import torch
from asynct_model import AsyncTConfig, AsyncTForCausalLM
from asynct_model.megatron.convert import FORMATS, to_huggingface, to_megatron
from megatron_by_hand import (
    assert_same,
    load_tensors,
    megatron_config,
    mixed_tensors,
    shards,
    stack_layers,
)
from random_checkpoint import random_checkpoint, save_checkpoint
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

_SETTINGS = dict(
    attention_window=2,
    attention_weights=(0.25, 0.75),
    attention_relu_pre=False,
    attention_clip=(0.0, 2.0),
    attention_scale=0.1,
    dyht_clip=(-2.0, 1.5),
    scalar_dyht=("norm.alpha", "self_attn.k_norm.gamma"),
    initializer_range=0.125,
    eos_token_id=[5, 6],
    pad_token_id=7,
)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 8])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_round_trip_keeps_every_bit(checkpoint_format, ranks, kv_heads, tied, tmp_path, seed):
    config = megatron_config(num_key_value_heads=kv_heads, tie_word_embeddings=tied)
    tensors = mixed_tensors(config, seed)
    source = save_checkpoint(tmp_path / "source", config, tensors)
    to_megatron(source, tmp_path / "megatron", checkpoint_format, ranks)
    summary = to_huggingface(tmp_path / "megatron", tmp_path / "back")
    assert_same(load_tensors(tmp_path / "back"), tensors)
    assert summary.tensors == len(tensors)
    assert summary.bytes == sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_what_comes_back_loads_and_computes_the_same(checkpoint_format, tmp_path, seed):
    source = random_checkpoint(tmp_path / "source", seed, **_SETTINGS)
    to_megatron(source, tmp_path / "megatron", checkpoint_format, ranks=2)
    to_huggingface(tmp_path / "megatron", tmp_path / "back")
    tokens = torch.randint(512, (2, 40))
    models = [AsyncTForCausalLM.from_pretrained(tmp_path / name) for name in ("source", "back")]
    expected, logits = (model(tokens).logits for model in models)
    assert torch.equal(logits, expected)
    assert models[1].dtype == torch.float32


@pytest.mark.parametrize("checkpoint_format", FORMATS)
def test_the_configuration_comes_back(checkpoint_format, tmp_path, seed):
    source = random_checkpoint(tmp_path / "source", seed, **_SETTINGS)
    to_megatron(source, tmp_path / "megatron", checkpoint_format)
    to_huggingface(tmp_path / "megatron", tmp_path / "back")
    expected, config = (
        AsyncTConfig.from_pretrained(tmp_path / name).to_dict() for name in ("source", "back")
    )
    assert config == expected


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_plain_files_are_what_megatron_writes(ranks, tied, tmp_path, seed):
    config = megatron_config(tie_word_embeddings=tied)
    tensors = mixed_tensors(config, seed)
    source = save_checkpoint(tmp_path / "source", config, tensors)
    to_megatron(source, tmp_path / "megatron", "torch", ranks)
    padded = 128 * ranks if ranks > 1 else 256
    for rank, expected in enumerate(shards(config, tensors, ranks, padded)):
        path = tmp_path / "megatron" / "release" / f"mp_rank_{rank:02d}" / "model_optim_rng.pt"
        saved = torch.load(path, weights_only=False)
        assert_same(saved["model"], expected)
        assert saved["args"].padded_vocab_size == padded
    assert (tmp_path / "megatron" / "latest_checkpointed_iteration.txt").read_text() == "release"
    assert not [path for path in path.parents[1].iterdir() if not path.name.startswith("mp_rank")]


@pytest.mark.parametrize("ranks", [1, 2])
def test_distributed_files_are_what_torch_reads(ranks, tmp_path, seed):
    config = megatron_config()
    tensors = mixed_tensors(config, seed)
    source = save_checkpoint(tmp_path / "source", config, tensors)
    to_megatron(source, tmp_path / "megatron", "torch_dist", ranks)
    dcp_to_torch_save(tmp_path / "megatron" / "release", tmp_path / "whole.pt")
    (expected,) = shards(config, tensors, 1)
    assert_same(torch.load(tmp_path / "whole.pt"), stack_layers(expected))


def test_progress_counts_every_tensor(tmp_path, seed):
    source = random_checkpoint(tmp_path / "source", seed)
    for checkpoint_format in FORMATS:
        counts: list[tuple[int, int]] = []
        output = tmp_path / checkpoint_format
        to_megatron(source, output, checkpoint_format, 2, lambda *count: counts.append(count))
        assert counts == [(done + 1, len(counts)) for done in range(len(counts))]
        back: list[tuple[int, int]] = []
        target = tmp_path / "back" / checkpoint_format
        to_huggingface(output, target, progress=lambda *count: back.append(count))
        assert back == counts
