"""A raw step does what qk_norm_rope_cache and then the same kernel do, bit by bit."""

import dataclasses
import math

import pytest
import torch

from asynct_kernels import QkNormRope, attend, attention_kernels, explain, qk_norm_rope_cache
from asynct_kernels.attention import find_kernel
from oracle import assert_accurate, truth
from problems import Case, as_bytes, run
from under_test import runs

RAW_KERNELS = [kernel for kernel in attention_kernels() if find_kernel(kernel).limits.takes_raw]
LENGTHS = (1, 2, 16, 17, 130, 0, 257, 64, 1030)
CASES = [Case(name=f"{kind}-D{head_dim}", query_lens=(1,) * len(LENGTHS), seq_lens=LENGTHS,
              head_dim=head_dim, padding=2, **settings)
         for head_dim in (64, 128, 256)
         for kind, settings in dict(
             usual={}, float16=dict(dtype=torch.float16, block_size=48),
             float8=dict(float8=True, head_scales=True), group=dict(heads=14, window=5)).items()]


def norm_rope_of(case, device, cos_sin_dtype, sizes):
    """A DyHT that clamps some, and RoPE's angles."""
    alpha, gamma = torch.randn(2, 2, case.head_dim, device=device)
    angles = (torch.arange(max(case.seq_lens) + 1)[:, None]
              * 1e4 ** -torch.linspace(0, 1, case.head_dim // 2)).to(device)
    return QkNormRope(
        q_alpha=alpha[0, :sizes[0]], q_gamma=gamma[0], k_alpha=alpha[1],
        k_gamma=gamma[1, :sizes[1]], clip=(-1.0, 0.8),
        cos_sin=torch.cat([angles.cos(), angles.sin()], -1).to(cos_sin_dtype))


@runs(CASES, RAW_KERNELS)
@pytest.mark.parametrize("float_angles", [True, False])
def test_as_in_two_steps(seed, case, kernel, device, float_angles):
    """Also where some tokens go to no slot, so that their requests have the key that is there."""
    given = dataclasses.replace(case, raw=False).make(device).fresh_arguments()
    one = dict(nan=1.0, posinf=1.0, neginf=1.0)
    for name in ("k_cache", "v_cache"):
        as_bytes(given[name]).copy_(as_bytes(given[name].float().nan_to_num(**one).to(
            given[name].dtype)))
    given["slot_mapping"][3:5] = -1
    sizes = (1, case.head_dim) if float_angles else (case.head_dim, 1)
    norm_rope = norm_rope_of(case, device, torch.float32 if float_angles else case.dtype, sizes)
    caches = {name: given[name].clone() for name in ("k_cache", "v_cache")}
    slots = given.pop("slot_mapping")
    key, value = given.pop("key"), given.pop("value")

    tokens = len(case.seq_lens)
    positions = torch.zeros(len(slots), dtype=torch.int64, device=device)
    positions[:tokens] = (given["seq_lens"] - 1).clamp(min=0)
    scales = {name: given[name] for name in ("k_scale", "v_scale")}
    slots[:tokens][given["seq_lens"] == 0] = -1
    query, _ = qk_norm_rope_cache(given["query"], key, value, positions, norm_rope, **caches,
                                  slot_mapping=slots, **scales)
    expected = run(kernel, given | caches | dict(query=query))
    output = run(kernel, given | dict(key=key, value=value, slot_mapping=slots,
                                      qk_norm_rope=norm_rope))
    assert torch.equal(output.view(torch.int16), expected.view(torch.int16))
    assert output[:tokens].isfinite().all() and output[:tokens].any()
    for name, cache in caches.items():
        assert torch.equal(as_bytes(given[name]), as_bytes(cache))


@runs(CASES, RAW_KERNELS)
def test_newest_keys_and_values_end_in_the_cache(seed, case, kernel, device):
    facts = truth(dataclasses.replace(case, raw=True), device, seed)
    given = facts.call.raw_arguments()
    assert_accurate(run(kernel, given), facts)
    for name in ("k_cache", "v_cache"):
        found, wanted = (x.float().nan_to_num(math.pi)
                         for x in (given[name], getattr(facts.call, name)))
        assert torch.equal(found, wanted)


STEP = Case(name="step", query_lens=(1, 1), seq_lens=(5, 20))


@pytest.mark.parametrize("kernel", attention_kernels())
def test_other_kernels_refuse_raw_queries(kernel):
    given = STEP.make("cpu").raw_arguments()
    refused = [r for r in explain(kernel, **given) if r.endswith("must be None")]
    assert bool(refused) == (kernel not in RAW_KERNELS)
    if refused:
        with pytest.raises(ValueError, match=f"{kernel} cannot serve this call: .*must be None"):
            attend(**given, kernel=kernel)


@pytest.mark.parametrize("changes, error, message", [
    (dict(qk_norm_rope=1), TypeError, "qk_norm_rope is a int: must be a QkNormRope"),
    (dict(slot_mapping=None), TypeError, "slot_mapping is a NoneType"),
    (dict(key=None), TypeError, "key is a NoneType"),
    (dict(qk_norm_rope=norm_rope_of(STEP, "cpu", torch.float16, (1, 1))), TypeError,
     "cos_sin has dtype torch.float16"),
])
def test_bad_arguments_are_named(changes, error, message):
    given = STEP.make("cpu").raw_arguments() | changes
    for kernel in RAW_KERNELS:
        with pytest.raises(error, match=message):
            explain(kernel, **given)
