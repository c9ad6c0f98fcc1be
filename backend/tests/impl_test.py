"""What a layer refuses, and what it does outside an ordinary step."""

import math
import re
from unittest import mock

import pytest
import torch
from comparison import assert_matches, random_gate
from synthetic_step import SyntheticStep

from asynct_kernels import GateParams
from asynct_vllm import impl as impl_module
from asynct_vllm.impl import AsyncTImpl
from asynct_vllm.settings import Settings

GATE = GateParams(sigma=1.0, alpha=16.0, gamma=1.0)


def make(**changes) -> AsyncTImpl:
    arguments = {
        "num_heads": 4,
        "head_size": 32,
        "scale": 1 / 32,
        "num_kv_heads": 2,
        "alibi_slopes": None,
        "sliding_window": None,
        "kv_cache_dtype": "auto",
        "logits_soft_cap": None,
        "attn_type": "decoder",
        "kv_sharing_target_layer_name": None,
        "gate": GATE,
    }
    return AsyncTImpl(**{**arguments, **changes})


@pytest.mark.parametrize(
    "changes",
    (
        {},
        {"num_kv_heads": None},
        {"num_kv_heads": 1},
        {"kv_cache_dtype": "bfloat16"},
        {"kv_cache_dtype": "fp8"},
        {"scale": 0.5, "gate": GateParams(1.0, 1.0, 1.0, scale=0.5)},
        {"gate": GateParams(torch.ones(4), torch.ones(4), torch.ones(4))},
        {"logits_soft_cap": 0.0},
    ),
    ids=str,
)
def test_accepts(changes):
    make(**changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    (
        ({"num_kv_heads": 3}, "num_heads=4 is not a multiple of num_kv_heads=3"),
        ({"num_kv_heads": 0}, "num_heads=4 is not a multiple of num_kv_heads=0"),
        ({"scale": 1 / math.sqrt(32)}, "scale=0.17"),
        ({"alibi_slopes": [0.5] * 4}, "alibi_slopes=[0.5, 0.5, 0.5, 0.5]"),
        ({"sliding_window": 128}, "sliding_window=128"),
        ({"logits_soft_cap": 30.0}, "logits_soft_cap=30.0"),
        ({"attn_type": "encoder_only"}, "attn_type=encoder_only"),
        ({"attn_type": "encoder_decoder"}, "attn_type=encoder_decoder"),
        ({"kv_sharing_target_layer_name": "layers.0"}, "kv_sharing_target_layer_name='layers.0'"),
        (
            {"kv_cache_dtype": "fp8_e5m2"},
            "kv_cache_dtype='fp8_e5m2': only auto, float16, bfloat16, fp8, fp8_e4m3",
        ),
        ({"gate": GateParams(torch.ones(2), 1.0, 1.0)}, "sigma has shape [2]"),
        ({"gate": GateParams(1.0, 1.0, torch.ones(8))}, "gamma has shape [8]"),
    ),
    ids=str,
)
def test_refuses(changes, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        make(**changes)


def test_gives_every_reason_at_once():
    with pytest.raises(ValueError, match="sliding_window=8.*kv_cache_dtype='fp8_e5m2'"):
        make(sliding_window=8, kv_cache_dtype="fp8_e5m2")


@pytest.mark.parametrize("gate", (None, 1.0, {"sigma": 1.0}))
def test_refuses_what_is_no_gate(gate):
    with pytest.raises(TypeError, match="gate=.*GateParams"):
        make(gate=gate)


@pytest.mark.parametrize("kind", ("dcp", "pcp"))
def test_refuses_context_parallelism(kind, monkeypatch):
    new = AsyncTImpl.__new__

    def of_two_ranks(cls, *args, **kwargs):
        self = new(cls)
        setattr(self, f"{kind}_world_size", 2)
        return self

    monkeypatch.setattr(impl_module.AsyncTImpl, "__new__", of_two_ranks)
    with pytest.raises(ValueError, match="context parallelism over 2 ranks"):
        make()


def test_refuses_a_quantised_output():
    query = torch.zeros(1, 4, 32)
    with pytest.raises(ValueError, match="output_scale"):
        make().forward(None, query, None, None, None, None, query, output_scale=torch.ones(1))


def test_a_run_without_metadata_gives_zeros():
    query = torch.full((3, 4, 32), float("nan"))
    output = torch.full_like(query, float("nan"))
    make().forward(None, query, query, query, torch.empty(0), None, output)
    assert (output == 0).all()


def test_rows_past_the_step_become_zeros(seed):
    step, gate = SyntheticStep.make((3, 1), (14, 31)), random_gate(4)
    expected = step.run(gate, Settings())
    query = torch.nn.functional.pad(step.query, (0, 0, 0, 0, 0, 4), value=float("nan"))
    output = torch.full_like(query, float("nan"))
    metadata = step.build(Settings())
    step.impl(gate).forward(None, query, None, None, step.kv_cache, metadata, output)
    assert torch.equal(output[:4], expected)
    assert (output[4:] == 0).all()


def test_queries_may_be_views_of_a_fused_projection(seed):
    step, gate = SyntheticStep.make((3, 1), (14, 31)), random_gate(4)
    fused = torch.full((4, 4 + 2 + 2, 32), float("nan"))
    fused[:, :4] = step.query
    fused[:, 4:6] = step.key
    fused[:, 6:] = step.value
    query, key, value = fused.split((4, 2, 2), dim=1)
    layer = step.impl(gate)
    layer.do_kv_cache_update(None, key, value, step.kv_cache, step.common.slot_mapping)
    output = torch.full_like(step.query, float("nan"))
    metadata = step.build(Settings())
    layer.forward(None, query, key, value, step.kv_cache, metadata, output)
    assert_matches(output, step.reference(gate))


def test_off_the_cpu_vllm_writes_the_cache(monkeypatch):
    """One call with K's and V's views: no index that the host would have to wait for."""
    write = mock.Mock()
    monkeypatch.setattr(impl_module.ops, "reshape_and_cache_flash", write)
    cache = torch.empty(5, 2, 16, 2, 32, device="meta")
    key, value = torch.empty(2, 4, 2, 32, device="meta")
    slots = torch.empty(3, dtype=torch.int64, device="meta")
    layer = mock.Mock()
    make(kv_cache_dtype="bfloat16").do_kv_cache_update(layer, key, value, cache, slots)
    ((given_key, given_value, k_cache, v_cache, *others), keywords) = write.call_args
    assert (given_key is key, given_value is value, keywords) == (True, True, {})
    assert k_cache.shape == v_cache.shape == (5, 16, 2, 32)
    assert (k_cache.storage_offset(), v_cache.storage_offset()) == (0, 16 * 2 * 32)
    assert others == [slots, "bfloat16", layer._k_scale, layer._v_scale]
