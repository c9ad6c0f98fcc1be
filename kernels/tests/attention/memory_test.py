"""Caches of any layout and size, and tables that share and repeat blocks."""

import dataclasses
import math

import pytest
import torch

from asynct_kernels import attend, attention_kernels, explain
from asynct_kernels.attention import find_kernel
from oracle import assert_accurate, truth
from problems import Case, interleaved, run
from under_test import arguments, runs

STEPS = {
    "decode": dict(query_lens=(1,) * 5, seq_lens=(1, 3, 70, 300, 777)),
    "prefill": dict(query_lens=(70, 1, 40), seq_lens=(70, 30, 200)),
    "prompts": dict(query_lens=(70, 1, 140), seq_lens=(70, 1, 140)),
}


def separate(shape, dtype, device):
    """K and V in memory of their own, with other strides than each other."""
    num_blocks, *block = shape
    wide = torch.empty(num_blocks + 3, *block, dtype=dtype, device=device)
    return torch.empty(shape, dtype=dtype, device=device), wide[2:-1]


def heads_first(shape, dtype, device):
    """[num_blocks, H_kv, block_size, D] underneath, as some caches have it."""
    num_blocks, block_size, kv_heads, head_dim = shape
    caches = interleaved((num_blocks, kv_heads, block_size, head_dim), dtype, device)
    return [cache.transpose(1, 2) for cache in caches]


def padded(shape, dtype, device):
    """16 bytes or more between heads, slots and blocks."""
    num_blocks, block_size, kv_heads, head_dim = shape
    wide = (num_blocks, block_size + 1, kv_heads + 2, head_dim + 16)
    return [cache[:, :block_size, 1:-1, :head_dim] for cache in interleaved(wide, dtype, device)]


def backwards(shape, dtype, device):
    """K behind V, and a block's slots far apart: [block_size, num_blocks, 2, H_kv, D]."""
    num_blocks, block_size, *rest = shape
    cache = torch.empty(block_size, num_blocks, 2, *rest, dtype=dtype, device=device)
    value, key = cache.transpose(0, 1).unbind(2)
    return key, value


def unaligned(shape, dtype, device):
    """Rows that begin at no multiple of 16 bytes."""
    wide = (*shape[:-1], shape[-1] + 3)
    return [cache[..., 1:-2] for cache in interleaved(wide, dtype, device)]


def one_block(table, needed):
    """Every block of every request is the first's first."""
    for row, count in zip(table, needed):
        row[:count] = table[0, 0]


def common_prefix(table, needed):
    """All requests begin with the blocks of the longest, each but for its own last block."""
    longest = table[max(range(len(needed)), key=needed.__getitem__)].clone()
    for row, count in zip(table, needed):
        row[:max(count - 1, 0)] = longest[:max(count - 1, 0)]


def repeated(table, needed):
    """A request's blocks are its first two, over and over."""
    for row, count in zip(table, needed):
        row[:count] = row[:2].repeat(count)[:count]


LAYOUTS = (separate, heads_first, padded, backwards)
SHARES = (one_block, common_prefix, repeated)

CASES = [
    *(Case(name=f"{step}-{layout.__name__}-{'float8' if float8 else 'same'}", layout=layout,
           float8=float8, **lengths)
      for step, lengths in STEPS.items() for layout in LAYOUTS for float8 in (False, True)),
    *(Case(name=f"{step}-{share.__name__}", share=share, **STEPS[step])
      for step in ("decode", "prefill") for share in SHARES),
    *(Case(name=f"{step}-unaligned", layout=unaligned, alignment=2, **lengths)
      for step, lengths in STEPS.items()),
]


@runs(CASES)
def test_accurate(seed, case, kernel, device):
    facts = truth(case, device, seed)
    assert_accurate(run(kernel, arguments(kernel, facts.call)), facts)


# Blocks of 2 * 16 * 2 * 128 elements, so that the last of these lies past 2^31 elements.
FAR_BLOCKS = 2**31 // 8192 + 1000
FAR = [Case(name=f"{step}-{'float8' if float8 else 'same'}", float8=float8, spare_blocks=FAR_BLOCKS,
            poison=None, **lengths)
       for step, lengths in STEPS.items() for float8 in (False, True)]


@runs(FAR)
def test_caches_of_more_than_2_to_the_31_elements(seed, case, kernel, device):
    """One request's last block is made the cache's last, whatever the shuffle."""
    far = dataclasses.replace(case, share=_last_block)
    facts = truth(far, device, seed)
    offset = int(facts.call.block_table[-1, 0]) * facts.call.k_cache.stride(0)
    assert offset >= 2**31
    assert_accurate(run(kernel, arguments(kernel, facts.call)), facts)


def _last_block(table, needed):
    table[-1, 0] = FAR_BLOCKS


@runs(Case(name=name, padding=3, **lengths) for name, lengths in STEPS.items())
def test_strided_query_and_output(seed, case, kernel, device):
    """Query as a view of the fused projection, the output as a view with heads outermost."""
    facts = truth(case, device, seed)
    given = arguments(kernel, facts.call)
    fused = torch.full((facts.call.query.shape[0], 2 * case.heads, case.head_dim), math.nan,
                       dtype=case.dtype, device=device)
    query = fused[:, case.heads:].copy_(given["query"])
    around = torch.full((case.heads + 2, query.shape[0] + 2, case.head_dim), math.nan,
                        dtype=case.dtype, device=device)
    out = around[1:-1, 1:-1].transpose(0, 1)
    assert_accurate(run(kernel, given | dict(query=query, out=out)), facts)
    assert int(around.isfinite().sum()) == facts.exact.numel()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("kernel", attention_kernels())
def test_an_alignment_that_a_kernel_cannot_read_is_refused(kernel, device):
    case = Case(name="unaligned", layout=unaligned, query_lens=(1,), seq_lens=(1,))
    given = case.make(device).arguments()
    refused = [r for r in explain(kernel, **given) if "multiple of" in r]
    assert bool(refused) == (find_kernel(kernel).limits.alignment > 2)
    assert all(name in " ".join(refused) for name in ("k_cache", "v_cache") if refused)
    if refused:
        with pytest.raises(ValueError, match="cannot serve this call: .*k_cache"):
            attend(**given, kernel=kernel)
