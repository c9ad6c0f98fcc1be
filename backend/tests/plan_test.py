"""The plan: pure, frozen, what it prefers, and the reasons that it gives."""

import dataclasses
from typing import get_args

import pytest
import torch

from asynct_kernels.attention import LayerShape
from asynct_vllm.plan import (
    StepShape,
    describe_norm_rope,
    invariance_reasons,
    norm_rope_reasons,
    plan,
)
from asynct_vllm.settings import Settings, TorchPath

MIXED = StepShape(
    num_decodes=15, num_prefills=1, fresh=False, num_tokens=527, max_query_len=512,
    max_seq_len=2048,
)
LAYER = LayerShape(
    dtype=torch.bfloat16, head_dim=128, group=2, block_size=16, window=3, float8_cache=False
)
HOPPER, AMPERE = (9, 0), (8, 0)


@pytest.mark.parametrize("capability", (None, HOPPER))
@pytest.mark.parametrize("path", get_args(TorchPath))
def test_a_path_that_is_set_serves_the_whole_step(path, capability):
    chosen = plan(MIXED, LAYER, capability, Settings(torch_path=path))
    assert (chosen.torch_path, chosen.decode, chosen.prefill) == (path, None, None)
    assert "VLLM_HP1_TORCH_PATH" in str(chosen)


def test_without_a_gpu_pytorch_serves_and_says_why():
    chosen = plan(MIXED, LAYER, None, Settings())
    assert chosen.torch_path == "gather"
    assert "not hp1_decode_paged: query is on no CUDA device" in str(chosen)


def test_on_hopper():
    chosen = plan(MIXED, LAYER, HOPPER, Settings())
    assert (chosen.decode, chosen.prefill) == ("hp1_decode_paged", "hp1_prefill_wgmma")
    assert "prompts have a prefix" in str(chosen)


def test_fresh_prompts_are_read_as_the_projection_wrote_them():
    fresh = dataclasses.replace(MIXED, fresh=True)
    chosen = plan(fresh, LAYER, HOPPER, Settings())
    assert (chosen.decode, chosen.prefill) == ("hp1_decode_paged", "hp1_prefill_super_page")
    assert "prompts are fresh" in chosen.reason
    assert plan(fresh, LAYER, AMPERE, Settings()).prefill == "hp1_prefill_mma"
    short = dataclasses.replace(fresh, max_query_len=63)
    assert plan(short, LAYER, HOPPER, Settings()).prefill == "hp1_prefill_mma"


def test_on_ampere():
    chosen = plan(MIXED, LAYER, AMPERE, Settings())
    assert chosen.prefill == "hp1_prefill_mma"
    assert "not hp1_prefill_wgmma" in chosen.reason


def test_only_what_is_there_is_served():
    decodes = dataclasses.replace(MIXED, num_prefills=0, max_query_len=1)
    assert plan(decodes, LAYER, HOPPER, Settings()).prefill is None
    prefills = dataclasses.replace(MIXED, num_decodes=0)
    assert plan(prefills, LAYER, HOPPER, Settings()).decode is None


def test_short_chunks_are_not_wgmmas():
    short = dataclasses.replace(MIXED, max_query_len=63)
    chosen = plan(short, LAYER, HOPPER, Settings())
    assert chosen.prefill == "hp1_prefill_mma"
    assert "VLLM_HP1_WGMMA_MIN_TQ" in chosen.reason
    assert plan(short, LAYER, HOPPER, Settings(wgmma_min_tq=63)).prefill == "hp1_prefill_wgmma"


def test_settings_turn_kernels_off():
    assert plan(MIXED, LAYER, HOPPER, Settings(prefill_wgmma=False)).prefill == "hp1_prefill_mma"
    triton = plan(MIXED, LAYER, HOPPER, Settings(use_cuda=False))
    assert (triton.decode, triton.prefill) == ("triton_decode", "triton_prefill")


def test_a_shape_that_cuda_does_not_take_is_tritons_and_says_why():
    odd = dataclasses.replace(LAYER, head_dim=80)
    chosen = plan(MIXED, odd, HOPPER, Settings())
    assert (chosen.decode, chosen.prefill) == ("triton_decode", "triton_prefill")
    assert "not hp1_decode_paged: head size D is 80" in chosen.reason


def test_what_no_kernel_takes_is_pytorchs_and_says_why():
    float32 = dataclasses.replace(LAYER, dtype=torch.float32)
    chosen = plan(MIXED, float32, HOPPER, Settings())
    assert chosen.torch_path == "gather"
    assert "query has dtype torch.float32" in chosen.reason


@pytest.mark.parametrize("changes", (
    {"num_decodes": 1, "num_tokens": 513}, {"max_seq_len": 131072}, {"max_query_len": 2048},
    {"num_prefills": 0, "max_query_len": 1, "num_tokens": 15},
))
def test_lengths_do_not_change_what_serves_decodes(changes):
    """A captured graph replays what was planned when it was captured."""
    other = plan(dataclasses.replace(MIXED, **changes), LAYER, HOPPER, Settings())
    assert other.decode == plan(MIXED, LAYER, HOPPER, Settings()).decode


def test_pure():
    assert plan(MIXED, LAYER, HOPPER, Settings()) == plan(MIXED, LAYER, HOPPER, Settings())
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(MIXED, LAYER, HOPPER, Settings()).decode = "reference"


def test_kernels_do_dyht_and_rope_unless_something_is_in_the_way():
    assert not norm_rope_reasons(LAYER, HOPPER, Settings())
    assert describe_norm_rope([]).endswith("with the attention")
    for layer, capability, settings, reason in (
        (LAYER, None, Settings(), "query is on no CUDA device"),
        (LAYER, HOPPER, Settings(torch_path="loop"), "VLLM_HP1_TORCH_PATH is loop"),
        (LAYER, HOPPER, Settings(use_cuda=False), "VLLM_HP1_USE_CUDA is 0"),
        (dataclasses.replace(LAYER, head_dim=80), HOPPER, Settings(), "head size D is 80"),
    ):
        line = describe_norm_rope(norm_rope_reasons(layer, capability, settings))
        assert "by the model" in line and reason in line


def test_one_kernel_serves_every_query_where_batches_may_not_matter():
    invariant = Settings(batch_invariant=True)
    for shape in (MIXED, dataclasses.replace(MIXED, fresh=True, max_query_len=7)):
        chosen = plan(shape, LAYER, HOPPER, invariant)
        assert chosen.decode == chosen.prefill == "hp1_prefill_mma"
        assert "VLLM_BATCH_INVARIANT" in chosen.reason
    decodes = dataclasses.replace(MIXED, num_prefills=0, max_query_len=1)
    assert plan(decodes, LAYER, HOPPER, invariant).prefill is None


def test_batches_matter_without_that_kernel():
    assert not invariance_reasons(LAYER, HOPPER, Settings(batch_invariant=True))
    for layer, capability, changed, reason in (
        (LAYER, None, {}, "query is on no CUDA device"),
        (dataclasses.replace(LAYER, head_dim=80), HOPPER, {}, "head size D is 80"),
        (LAYER, HOPPER, dict(torch_path="loop"), "VLLM_HP1_TORCH_PATH is loop"),
        (LAYER, HOPPER, dict(use_cuda=False), "VLLM_HP1_USE_CUDA is 0"),
    ):
        settings = Settings(batch_invariant=True, **changed)
        assert reason in "; ".join(invariance_reasons(layer, capability, settings))
