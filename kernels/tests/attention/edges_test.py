"""Lengths around every edge that a kernel may have: pages, tiles, splits; prefixes; few of each."""

import itertools

from oracle import assert_accurate, truth
from problems import Case, run
from under_test import arguments, runs

# The sizes that kernels cut keys and queries by, and their neighbours.
SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 4096)
EDGES = sorted({0, 1, 2, 3} | {size + d for size in SIZES for d in (-2, -1, 0, 1, 2)})
FEW_EDGES = (0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 257)


def decodes(name, lengths, **settings):
    return Case(name=name, query_lens=(1,) * len(lengths), seq_lens=tuple(lengths), **settings)


def extensions(name, query_lens, prefixes, **settings):
    """Every number of queries after every prefix, in one batch."""
    pairs = list(itertools.product(query_lens, prefixes))
    return Case(name=name, query_lens=tuple(q for q, _ in pairs),
                seq_lens=tuple(q + p for q, p in pairs), **settings)


def prompts(name, lengths, **settings):
    return Case(name=name, query_lens=tuple(lengths), seq_lens=tuple(lengths), **settings)


def cases():
    small = dict(heads=2, kv_heads=1, head_dim=64)
    yield decodes("decode-edges", EDGES)
    yield decodes("decode-every-length", range(600))
    yield extensions("extend-edges", FEW_EDGES, FEW_EDGES)
    yield extensions("extend-every-few", range(10), range(20), **small)
    yield prompts("prompt-edges", [n for n in EDGES if n <= 1026])
    yield prompts("prompt-every-length", range(200), **small)
    for window in (1, 8):
        yield decodes(f"decode-window{window}", EDGES, window=window)
        yield extensions(f"extend-window{window}", FEW_EDGES, FEW_EDGES, window=window)
        yield prompts(f"prompt-window{window}", FEW_EDGES, window=window)
    for block_size in (32, 128):
        yield decodes(f"decode-block{block_size}", EDGES, block_size=block_size)
        yield extensions(f"extend-block{block_size}", FEW_EDGES, FEW_EDGES, block_size=block_size)
    for head_dim in (64, 256):
        yield decodes(f"decode-D{head_dim}", EDGES, head_dim=head_dim)
        yield extensions(f"extend-D{head_dim}", FEW_EDGES, FEW_EDGES, head_dim=head_dim)
        yield prompts(f"prompt-D{head_dim}", FEW_EDGES, head_dim=head_dim)
    for group in (1, 5, 16):
        yield decodes(f"decode-group{group}", EDGES, heads=group, kv_heads=1)
        yield extensions(f"extend-group{group}", FEW_EDGES, FEW_EDGES, heads=group, kv_heads=1)
    # A few that an interpreter can do.
    yield decodes("decode-few", (0, 1, 2, 3, 16, 63, 249, 497), **small)
    yield extensions("extend-few", (1, 2), (0, 1, 15, 63), **small)


@runs(cases())
def test_accurate(seed, case, kernel, device):
    facts = truth(case, device, seed)
    assert_accurate(run(kernel, arguments(kernel, facts.call)), facts)


@runs([Case(name="queries-without-keys", query_lens=(1, 1, 1, 1), seq_lens=(0, 5, 0, 0), padding=2),
       Case(name="padding-of-a-prefill", query_lens=(5, 0, 3, 0), seq_lens=(9, 0, 0, 7), padding=2),
       Case(name="padding-of-a-prompt", query_lens=(5, 0, 0, 7), seq_lens=(5, 0, 0, 7), padding=2)])
def test_padding_gets_zeros_and_what_no_request_owns_stays(seed, case, kernel, device):
    facts = truth(case, device, seed)
    output = run(kernel, arguments(kernel, facts.call))
    assert_accurate(output, facts)
    assert output[facts.call.tokens:].isnan().all()
    start = 0
    for queries, keys in zip(case.query_lens, case.seq_lens):
        if not keys:
            assert not output[start:start + queries].any()
        start += queries


@runs([Case(name="nothing", query_lens=(0,), seq_lens=(0,)),
       Case(name="no-query", query_lens=(0, 0), seq_lens=(20, 0), padding=3)])
def test_nothing_to_do(seed, case, kernel, device):
    assert run(kernel, arguments(kernel, case.make(device))).isnan().all()
