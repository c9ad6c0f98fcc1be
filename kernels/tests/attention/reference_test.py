"""The paged reference against the dense one, where the cache is full of poison; any device."""

import math

import torch

import asynct_kernels.attention.reference
from asynct_kernels import attend
from asynct_kernels.reference import attention
from oracle import requests
from problems import FLOAT8, Case, poison, run
from under_test import runs

CASES = [
    Case(name="mixed", query_lens=(3, 0, 1, 40, 1), seq_lens=(30, 0, 17, 40, 0), padding=2),
    Case(name="more-queries-than-keys", query_lens=(5, 3), seq_lens=(2, 0)),
    Case(name="odd", query_lens=(3, 20), seq_lens=(9, 20), heads=6, kv_heads=2, head_dim=10,
         block_size=3, window=5, poison=math.inf),
]
STEP = Case(name="step", query_lens=(3, 0, 1, 40), seq_lens=(30, 0, 17, 40), padding=2)


@runs(CASES, ["reference"])
def test_equals_the_dense_reference(seed, case, kernel, device):
    call = case.make(device)
    output = run(kernel, call.arguments())
    expected = torch.zeros_like(output)
    for rows, query, key, value in requests(call):
        expected[rows] = attention(query, key, value, call.gate)
    assert torch.equal(output[:call.tokens], expected[:call.tokens])
    assert output[call.tokens:].isnan().all()


@runs(CASES, ["reference"])
def test_long_requests_are_cut(seed, case, kernel, device, monkeypatch):
    given = case.make(device).arguments()
    expected = run(kernel, given)
    monkeypatch.setattr(asynct_kernels.attention.reference, "_CHUNK_SCORES", 200)
    assert torch.equal(run(kernel, given).nan_to_num(7.0), expected.nan_to_num(7.0))


@runs([STEP], ["reference"])
def test_writes_fresh_keys_and_values_to_their_slots_alone(seed, case, kernel, device):
    call = case.make(device)
    given = call.fresh_arguments()
    expected = [given[name].clone() for name in ("k_cache", "v_cache")]
    for token, slot in enumerate(given["slot_mapping"].tolist()):
        if slot >= 0:
            block, offset = divmod(slot, case.block_size)
            for cache, name in zip(expected, ("key", "value")):
                cache[block, offset] = given[name][token]
    output = run(kernel, given)
    assert torch.equal(output[:call.tokens], run(kernel, call.arguments())[:call.tokens])
    for name, cache in zip(("k_cache", "v_cache"), expected):
        assert torch.equal(given[name].nan_to_num(7.0), cache.nan_to_num(7.0))


@runs([STEP], ["reference"])
def test_a_float8_cache_gets_values_over_scales_saturated(seed, case, kernel, device):
    call = case.make(device)
    caches = {}
    for name in ("k_cache", "v_cache"):
        caches[name] = torch.empty(call.k_cache.shape, dtype=FLOAT8, device=device)
        poison(caches[name], math.nan)
    given = call.fresh_arguments() | caches
    given["key"][0] = 1e4
    scales = dict(k_scale=torch.tensor([0.5, 4.0], device=device), v_scale=2.0)
    attend(**given | scales, kernel=kernel)
    _, block, slot = call.step_slots()
    for name, cache, scale in (("key", "k_cache", scales["k_scale"]), ("value", "v_cache", 2.0)):
        fresh = given[name][:call.tokens].float()
        stored = given[cache].view(torch.uint8)[block, slot].view(FLOAT8).float()
        factor = scale[:, None] if isinstance(scale, torch.Tensor) else scale
        wanted = (fresh / factor).clamp(-448, 448)
        assert ((stored - wanted).abs() <= wanted.abs() / 16 + 2.0**-10).all()
    assert given["k_cache"].float().isfinite().sum() == call.tokens * 2 * case.head_dim
