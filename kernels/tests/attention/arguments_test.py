"""Every bad argument is refused by name, before anything runs; and what each kernel must serve."""

import dataclasses
import itertools
import math

import pytest
import torch

from asynct_kernels import GateParams, attend, attention_kernels, explain, workspace_bytes
from asynct_kernels.attention import LayerShape, find_kernel
from asynct_kernels.attention.problem import check_workspace
from problems import Case

CASE = Case(name="arguments", query_lens=(2, 1), seq_lens=(20, 1), heads=4, kv_heads=2, head_dim=8)
FLOAT8 = torch.float8_e4m3fn
BF16 = torch.bfloat16


def replaced(**changes):
    """Good keywords for attend, by the reference, with changes."""
    return CASE.make("cpu").arguments() | dict(kernel="reference") | changes


def zeros(*shape, dtype=BF16):
    return torch.zeros(shape, dtype=dtype)


def int32(*shape):
    return torch.zeros(shape, dtype=torch.int32)


def gated(**changes):
    return GateParams(**dict(sigma=1.0, alpha=1.0, gamma=1.0) | changes)


# The good shapes: query [3, 4, 8], caches [11, 16, 2, 8], table [2, 5].
FRESH = dict(key=zeros(3, 2, 8), value=zeros(3, 2, 8),
             slot_mapping=torch.zeros(3, dtype=torch.int64))
BAD = [
    (dict(kernel="fast"), ValueError, "kernel is 'fast': must be one of reference, "),
    (dict(query=None), TypeError, "query is a NoneType: must be a torch.Tensor"),
    (dict(query=zeros(3, 4, 8, dtype=torch.float32)), TypeError,
     "query has dtype torch.float32: must be one of torch.bfloat16, torch.float16"),
    (dict(query=zeros(3, 32)), ValueError, r"query has shape \[3, 32\]: must be \[T, H, D\]"),
    (dict(query=zeros(3, 8, 4).mT), ValueError, r"query has strides .*: the last must be 1"),
    (dict(query=zeros(3, 3, 8)), ValueError, "query has 3 heads and key has 2"),
    (dict(k_cache=[1]), TypeError, "k_cache is a list"),
    (dict(k_cache=zeros(11, 16, 2, 8, dtype=torch.float16)), TypeError,
     "k_cache has dtype torch.float16: must be one of torch.bfloat16, torch.float8_e4m3fn"),
    (dict(k_cache=zeros(11, 16, 16)), ValueError, r"k_cache has shape \[11, 16, 16\]: must be "
     r"\[num_blocks, block_size, H_kv, D\]"),
    (dict(v_cache=zeros(11, 16, 2, 16)), ValueError, r"v_cache has shape \[11, 16, 2, 16\]"),
    (dict(v_cache=zeros(11, 16, 2, 8).to(FLOAT8)), TypeError, "v_cache has dtype .*float8_e4m3fn "
     "and k_cache has dtype torch.bfloat16"),
    (dict(k_cache=zeros(11, 16, 2, 16), v_cache=zeros(11, 16, 2, 16)), ValueError,
     r"k_cache has shape \[11, 16, 2, 16\]: must be \[11, 16, 2, 8\]"),
    (dict(k_cache=zeros(11, 0, 2, 8), v_cache=zeros(11, 0, 2, 8)), ValueError,
     "block_size must be at least 1"),
    (dict(block_table=torch.zeros(2, 5, dtype=torch.int64)), TypeError,
     "block_table has dtype torch.int64: must be one of torch.int32"),
    (dict(block_table=int32(3, 5)), ValueError, r"block_table has shape \[3, 5\]"),
    (dict(block_table=int32(5, 2).T), ValueError, "block_table has strides"),
    (dict(query_start_loc=int32(2)), ValueError, r"query_start_loc has shape \[2\]: must be \[3\]"),
    (dict(query_start_loc=zeros(3)), TypeError, "query_start_loc has dtype torch.bfloat16"),
    (dict(seq_lens=int32(2, 1)), ValueError, r"seq_lens has shape \[2, 1\]: must be \[R\]"),
    (dict(seq_lens=int32(4)[::2]), ValueError, r"seq_lens has strides \[2\]"),
    (dict(gate=None), TypeError, "gate is a NoneType: must be a GateParams"),
    (dict(gate=gated(sigma=torch.ones(3))), ValueError, r"sigma has shape \[3\]: must be \[4\]"),
    (dict(gate=gated(alpha=torch.ones(4, dtype=torch.float64))), TypeError,
     "alpha has dtype torch.float64: must be one of torch.float32"),
    (dict(gate=gated(gamma=torch.ones(1).expand(4))), ValueError, r"gamma has strides \[0\]"),
    (dict(gate=gated(sigma=torch.ones(4, device="meta"))), ValueError,
     "sigma is on meta and query on cpu: must be the same"),
    (dict(max_query_len=2.0), TypeError, r"max_query_len is 2.0 \(float\): must be an int"),
    (dict(max_query_len=-1), ValueError, "max_query_len is -1: must be at least 0"),
    (dict(max_seq_len=True), TypeError, "max_seq_len is True"),
    (dict(max_seq_len=81), ValueError, "max_seq_len is 81: block_table has room for 80 keys, 5 "
     "blocks of 16"),
    (dict(k_scale=1.0), ValueError, "k_scale is given: k_cache has dtype torch.bfloat16"),
    (dict(out=zeros(3, 4, 16)), ValueError, r"out has shape \[3, 4, 16\]: must be \[3, 4, 8\]"),
    (dict(out=zeros(3, 4, 8, dtype=torch.float16)), TypeError, "out has dtype torch.float16"),
    (dict(out=zeros(3, 8, 4).mT), ValueError, "out has strides"),
    (dict(out=3), TypeError, "out is a int"),
    (dict(workspace=[]), TypeError, "workspace is a list"),
    (dict(workspace=zeros(8)), TypeError, "workspace has dtype torch.bfloat16"),
    (dict(key=FRESH["key"]), TypeError, "value is a NoneType"),
    (FRESH | dict(key=zeros(2, 2, 8)), ValueError,
     r"key has shape \[2, 2, 8\]: must be \[3, 2, 8\]"),
    (FRESH | dict(value=zeros(3, 2, 8, dtype=torch.float16)), TypeError,
     "value has dtype torch.float16 and query has dtype torch.bfloat16"),
    (FRESH | dict(slot_mapping=int32(3)), TypeError, "slot_mapping has dtype torch.int32"),
    (dict(splits=4), TypeError, "splits is no tuning keyword of reference: it takes none"),
    (dict(kernel="triton_decode", splits=0), ValueError, "splits is 0: must be at least 1"),
    (dict(kernel="triton_decode", splits=4.0), TypeError, "splits is 4.0"),
]


@pytest.mark.parametrize("changes, error, message", BAD, ids=lambda value: None)
def test_bad_arguments_are_named(changes, error, message):
    given = replaced(**changes)
    with pytest.raises(error, match=message):
        attend(**given)
    with pytest.raises(error, match=message):
        explain(**given)


@pytest.mark.parametrize("scale, error, message", [
    ("1", TypeError, "k_scale is '1'"),
    (math.nan, ValueError, "k_scale is nan"),
    (torch.ones(3), ValueError, r"k_scale has shape \[3\]: must be \[1\] or \[2\]"),
    (torch.ones(1, 1), ValueError, r"k_scale has shape \[1, 1\]"),
    (torch.ones(2, dtype=BF16), TypeError, "k_scale has dtype torch.bfloat16"),
])
def test_bad_scales_are_named(scale, error, message):
    float8 = {name: zeros(11, 16, 2, 8).to(FLOAT8) for name in ("k_cache", "v_cache")}
    with pytest.raises(error, match=message):
        attend(**replaced(**float8, k_scale=scale, v_scale=1.0))


def test_left_out_arguments_are_found():
    given = replaced()
    expected = attend(**given)
    for name in ("max_query_len", "max_seq_len", "k_scale", "v_scale"):
        del given[name]
    assert torch.equal(attend(**given), expected)
    float8 = {name: given[name].nan_to_num().to(FLOAT8) for name in ("k_cache", "v_cache")}
    ones = dict(k_scale=torch.ones(2), v_scale=1)
    assert torch.equal(attend(**given | float8), attend(**given | float8 | ones))


@pytest.mark.parametrize("workspace, message", [
    (torch.empty(99, dtype=torch.uint8), "workspace has 99 bytes: must have 100 or more"),
    (torch.empty(300, dtype=torch.uint8)[1:], "must be a multiple of 16"),
    (torch.empty(300, dtype=torch.uint8)[::2], r"workspace has strides \[2\]"),
    (torch.empty(300, dtype=torch.uint8, device="meta"), "workspace is on meta and query on cpu"),
])
def test_bad_workspaces_are_named(workspace, message):
    with pytest.raises(ValueError, match=message):
        check_workspace(workspace, 100, torch.device("cpu"))


@pytest.mark.parametrize("kernel", attention_kernels())
def test_a_kernel_explains_what_it_cannot_serve(kernel):
    given = Case(name="odd", query_lens=(70,), seq_lens=(90,), heads=34, kv_heads=2, head_dim=264,
                 block_size=5, window=9).make("cpu").arguments()
    reasons = explain(kernel, **given)
    if kernel == "reference":
        assert reasons == []
        return
    assert any("head size D is 264" in reason for reason in reasons), reasons
    assert any("gate.window is 9: must be at most 8" in reason for reason in reasons), reasons
    with pytest.raises(ValueError, match=f"{kernel} cannot serve this call: .*window is 9"):
        attend(**given, kernel=kernel)


@pytest.mark.parametrize("kernel", attention_kernels())
def test_fresh_keys_are_refused_or_wanted(kernel):
    found = find_kernel(kernel).limits.fresh
    without, given = CASE.make("cpu").arguments(), CASE.make("cpu").fresh_arguments()
    refused = any(reason.endswith("must be None") for reason in explain(kernel, **given))
    wanted = any(reason.endswith("must be given") for reason in explain(kernel, **without))
    assert (refused, wanted) == (found in ("refused", "raw"), found == "required")
    if refused:
        with pytest.raises(ValueError, match=f"{kernel} cannot serve this call: .*must be None"):
            attend(**given, kernel=kernel)


# What the issue asks of each kernel on Hopper.
LAYERS = [
    LayerShape(dtype=dtype, head_dim=head_dim, group=group, window=window, block_size=block_size,
               float8_cache=float8)
    for dtype, head_dim, group, window, block_size, float8 in itertools.product(
        (torch.bfloat16, torch.float16), (64, 128, 256), (*range(1, 9), 16), range(1, 9),
        (16, 32, 64, 128), (False, True))
]


@pytest.mark.parametrize("kernel", attention_kernels())
def test_every_kernel_serves_what_it_must(kernel):
    found = find_kernel(kernel)
    for layer in LAYERS:
        if not (layer.float8_cache and found.limits.fresh == "required"):
            assert found.layer_reasons(layer, (9, 0)) == []


@pytest.mark.parametrize("kernel", ["triton_decode", "triton_prefill"])
def test_triton_serves_other_cards_and_shapes(kernel):
    odd = LayerShape(dtype=BF16, head_dim=40, group=5, window=3, block_size=7, float8_cache=True)
    found = find_kernel(kernel)
    assert found.layer_reasons(odd, (8, 9)) == found.layer_reasons(odd, (12, 0)) == []
    assert found.layer_reasons(dataclasses.replace(odd, float8_cache=False), (8, 0)) == []
    for capability, least in (((8, 6), "8.9"), ((7, 5), "8.9")):
        reason, = found.layer_reasons(odd, capability)
        assert f"must be {least} or later" in reason


def test_workspace_bytes():
    given = CASE.make("cpu").arguments() | dict(max_query_len=1)
    assert workspace_bytes("reference", **given) == 0
    assert workspace_bytes("triton_decode", **given) == 4 * 2 * 32 * 4 * 8
    assert workspace_bytes("triton_decode", **given, splits=1) == 0
