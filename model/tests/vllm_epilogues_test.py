"""Which projections may compute what follows them, by the reason given against it."""

from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from asynct_model import vllm_epilogues
from asynct_model.vllm_epilogues import refusal
from vllm.model_executor.layers.linear import RowParallelLinear, UnquantizedLinearMethod


@pytest.fixture
def hopper(monkeypatch) -> SimpleNamespace:
    """vLLM's configuration on a card of compute capability 9.0, with no LoRA."""
    config = SimpleNamespace(lora_config=None)
    platform = SimpleNamespace(
        is_cuda=lambda: True, is_device_capability=lambda capability: capability == (9, 0)
    )
    monkeypatch.setattr(vllm_epilogues, "current_platform", platform)
    monkeypatch.setattr(vllm_epilogues, "get_current_vllm_config", lambda: config)
    return config


def linear(weight=(32, 64), dtype=torch.bfloat16, tp_size=1) -> mock.Mock:
    return mock.Mock(
        spec=RowParallelLinear,
        quant_method=UnquantizedLinearMethod(),
        weight=torch.empty(weight, dtype=dtype),
        tp_size=tp_size,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_plain_projection_may(dtype, hopper):
    assert refusal(linear(dtype=dtype)) is None


@pytest.mark.parametrize(
    "projection, reason",
    [
        (linear(dtype=torch.float32), "the weight has dtype torch.float32"),
        (linear(weight=(40, 64)), "the weight has shape [40, 64], not of multiples of 16"),
        (linear(weight=(32, 8)), "the weight has shape [32, 8], not of multiples of 16"),
        (linear(tp_size=2), "the output is summed over 2 ranks"),
    ],
)
def test_others_may_not(projection, reason, hopper):
    assert refusal(projection) == reason


def test_a_quantised_weight_may_not(hopper):
    class Fp8(UnquantizedLinearMethod):
        pass

    quantised = mock.Mock(quant_method=Fp8(), spec=["quant_method"])
    assert refusal(quantised) == "the weight is quantised (Fp8)"


def test_adapters_forbid_it(hopper):
    hopper.lora_config = object()
    assert refusal(linear()) == "LoRA adapters add to the output"


def test_batch_invariance_forbids_it(hopper, monkeypatch):
    monkeypatch.setattr(vllm_epilogues.envs, "VLLM_BATCH_INVARIANT", True)
    assert refusal(linear()).endswith("(VLLM_BATCH_INVARIANT)")


def test_other_devices_have_no_such_kernels(hopper, monkeypatch):
    platform = vllm_epilogues.current_platform
    monkeypatch.setattr(platform, "is_device_capability", lambda capability: False)
    assert refusal(linear()) == "the kernels are for compute capability 9.0 alone"
    monkeypatch.setattr(platform, "is_cuda", lambda: False)
    assert refusal(linear()) == "there is no CUDA device"
