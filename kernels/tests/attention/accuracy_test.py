"""Every kernel against float64, over what a layer can be like."""

import math

import pytest
import torch

from asynct_kernels.attention import attention_kernels, find_kernel
from oracle import assert_accurate, truth
from problems import Case, as_bytes, run, wild_lengths
from under_test import arguments, runs

DECODE = dict(query_lens=(1,) * 6, seq_lens=(1, 17, 130, 300, 511, 1200))
PREFILL = dict(query_lens=(130, 1, 64, 7), seq_lens=(130, 90, 200, 300))
PROMPTS = dict(query_lens=(130, 1, 64, 300), seq_lens=(130, 1, 64, 300))
STEPS = {"decode": DECODE, "prefill": PREFILL, "prompts": PROMPTS}


def layers(step):
    """Cases of one step's lengths over dtypes, head sizes, groups, block sizes and float8."""
    lengths = STEPS[step]
    for dtype in (torch.bfloat16, torch.float16):
        for head_dim in (64, 128, 256):
            name = f"{step}-{str(dtype).removeprefix('torch.')}-D{head_dim}"
            yield Case(name=name, dtype=dtype, head_dim=head_dim, **lengths)
    for group in (*range(1, 9), 16):
        yield Case(name=f"{step}-group{group}", heads=2 * group, **lengths)
    for block_size in (32, 64, 128, 144, 1024):
        yield Case(name=f"{step}-block{block_size}", block_size=block_size, **lengths)
    for head_dim in (64, 128, 256):
        yield Case(name=f"{step}-float8-D{head_dim}", head_dim=head_dim, float8=True,
                   head_scales=head_dim == 128, **lengths)
    yield Case(name=f"{step}-float8-float16", dtype=torch.float16, float8=True, **lengths)
    yield Case(name=f"{step}-odd-shape", heads=3, kv_heads=1, head_dim=40, block_size=5, **lengths)


LAYERS = [case for step in STEPS for case in layers(step)]
SIZES = [
    *(Case(name=f"batch{n}", query_lens=(1,) * n, seq_lens=wild_lengths(n, 4096))
      for n in (1, 2, 3, 7, 33, 128, 512)),
    *(Case(name=f"prompt{n}", query_lens=(n,), seq_lens=(n,)) for n in (1, 2, 500, 2048, 8192)),
    Case(name="long-decode", query_lens=(1, 1), seq_lens=(131072, 131071)),
    Case(name="long-context", query_lens=(64, 200), seq_lens=(131072, 40000)),
]


@runs([*LAYERS, *SIZES])
def test_accurate(seed, case, kernel, device):
    facts = truth(case, device, seed)
    assert_accurate(run(kernel, arguments(kernel, facts.call)), facts)


@pytest.mark.parametrize("shift, least, most", [(0.0, 0.6, 0.75), (-8.0, 1.0, 1.0)])
def test_the_share_of_zeros_in_the_data(seed, shift, least, most):
    """A gate that is open, or closed, for every key would hide most errors."""
    case = Case(name="zeros", query_lens=(1,) * 20, seq_lens=(200,) * 20, shift=shift)
    call = case.make("cpu")
    paged = call.k_cache[call.block_table[:, :13].long()].flatten(1, 2)
    scores = torch.stack([
        torch.einsum("hd,khd->hk", call.query[i].float(), keys.repeat_interleave(2, 1).float())
        for i, keys in enumerate(paged[:, :200])
    ]) / case.head_dim
    before = torch.nn.functional.pad(scores.relu(), (2, 0))
    average = (before[..., 2:] + before[..., 1:-1] + before[..., :-2]) / 3
    zeros = (scores <= call.gate.sigma[:, None] * average).double().mean()
    assert least <= zeros <= most


@runs([Case(name="step", **PROMPTS, padding=3)])
def test_fresh_keys_and_values_end_in_the_cache(seed, case, kernel, device):
    facts = truth(case, device, seed)
    given = arguments(kernel, facts.call)
    output = run(kernel, given)
    assert_accurate(output, facts)
    assert output[facts.call.tokens:].isnan().all()
    for name in ("k_cache", "v_cache"):
        wanted, found = (as_bytes(x).nan_to_num(math.pi)
                         for x in (getattr(facts.call, name), given[name]))
        assert torch.equal(found, wanted)


@runs([Case(name="step", **PROMPTS, padding=3)],
      [kernel for kernel in attention_kernels()
       if find_kernel(kernel).limits.fresh in ("optional", "required")])
def test_without_slots_fresh_keys_leave_the_cache_as_it_is(seed, case, kernel, device):
    facts = truth(case, device, seed)
    fresh = facts.call.fresh_arguments()
    given = facts.call.arguments() | {name: fresh[name] for name in ("key", "value")}
    caches = [as_bytes(given[name]) for name in ("k_cache", "v_cache")]
    before = [cache.clone() for cache in caches]
    assert_accurate(run(kernel, given), facts)
    for cache, copy in zip(caches, before):
        assert torch.equal(cache.nan_to_num(math.pi), copy.nan_to_num(math.pi))
