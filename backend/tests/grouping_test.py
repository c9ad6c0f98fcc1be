"""How the gather and the bucketed path group rows: each once, and within the budget."""

import random

import pytest
import torch
from comparison import random_step
from synthetic_step import SyntheticStep

from asynct_vllm.settings import Settings
from asynct_vllm.torch_paths import bucketed, gather
from asynct_vllm.torch_paths.batch import Batch

BLOCK_SIZE = 16


def batch_of(query_lens, seq_lens) -> Batch:
    query_start = torch.tensor([0, *query_lens]).cumsum(0)
    width = -(-max(seq_lens) // BLOCK_SIZE)
    return Batch.build(
        query_start=tuple(query_start.tolist()),
        max_seq_lens=tuple(seq_lens),
        query_start_loc=query_start.int(),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        block_table=torch.zeros(len(seq_lens), width, dtype=torch.int32),
        block_size=BLOCK_SIZE,
    )


@pytest.mark.parametrize("budget", (1, 50, 1000, 131072))
def test_every_row_is_in_one_chunk(budget, seed):
    step = random_step(random.Random(seed), requests=20)
    metadata = step.build(Settings("gather", budget))
    targets = torch.cat([chunk.target for chunk in metadata.work.prepared])
    assert torch.equal(targets.sort().values, torch.arange(metadata.num_tokens))
    for chunk in metadata.work.prepared:
        assert torch.equal(chunk.rows.flatten()[chunk.source], chunk.target)
        assert (chunk.positions.flatten()[chunk.source] >= 0).all()
        assert (chunk.positions >= 0).sum() == len(chunk.source)


def test_blocks_for_keys():
    batch = batch_of([1], [33])
    num_keys = (-40, 0, 1, 16, 17, 32, 33, 48, 49, 10**6)
    assert [batch.blocks_for(keys) for keys in num_keys] == [1, 1, 1, 1, 2, 2, 3, 3, 3, 3]


@pytest.mark.parametrize("pairs", (1, 2, 7, 100, 131072))
@pytest.mark.parametrize("num_keys", (1, 2, 50, 131072, 10**6))
def test_the_most_rows_within_the_budget(pairs, num_keys):
    rows = gather._rows_within(pairs, num_keys)
    assert rows == 1 or rows * (num_keys + rows - 1) <= pairs
    assert (rows + 1) * (num_keys + rows) > pairs


@pytest.mark.parametrize(
    ("query_lens", "seq_lens"),
    (
        ([8192], [8192]),
        ([8192], [40960]),
        ([1] * 256, [2048] * 256),
        ([1] * 200 + [700, 900, 64], [2048] * 200 + [700, 5000, 64]),
    ),
    ids=("prompt of 8K", "last 8K of 40K", "256 decodes", "mixed"),
)
def test_a_chunk_never_holds_more_than_the_budget(query_lens, seq_lens):
    budget = 131072
    chunks = gather.prepare(batch_of(query_lens, seq_lens), budget)
    assert sum(len(chunk.target) for chunk in chunks) == sum(query_lens)
    for chunk in chunks:
        requests, rows = chunk.rows.shape
        keys = chunk.blocks.shape[1] * BLOCK_SIZE
        # One slice alone may pass the budget by what its last block is padded with.
        assert requests * rows * keys <= budget + rows * (BLOCK_SIZE - 1) * (requests == 1)


@pytest.mark.parametrize("budget", (100, 5000, 131072))
def test_padding_at_most_doubles_the_pairs(budget, seed):
    rng = random.Random(seed)
    seq_lens = [rng.randint(1, 600) for _ in range(50)]
    query_lens = [rng.choice((1, 1, rng.randint(1, seq_len))) for seq_len in seq_lens]
    batch = batch_of(query_lens, seq_lens)
    for spans in gather.group(gather.slices(batch, budget), BLOCK_SIZE, budget):
        blocks = max(span.num_blocks for span in spans)
        padded = len(spans) * max(span.num_rows for span in spans) * blocks
        assert padded <= 2 * sum(span.num_rows * span.num_blocks for span in spans)


def test_a_slice_reads_only_the_keys_that_it_may_see():
    chunks = gather.prepare(batch_of([4096], [4096]), 131072)
    for chunk in chunks:
        last = int(chunk.positions.max())
        assert chunk.blocks.shape[1] == last // BLOCK_SIZE + 1


def test_decodes_of_one_length_share_a_chunk():
    assert len(gather.prepare(batch_of([1] * 64, [2048] * 64), 131072)) == 1


@pytest.mark.parametrize("budget", (1, 300, 2000, 131072))
def test_buckets_keep_to_the_budget_and_are_full(budget, seed):
    rng = random.Random(seed)
    seq_lens = [rng.randint(1, 600) for _ in range(50)]
    batch = batch_of([rng.choice((0, 1, 1, 1))] + [1] * 49, seq_lens)
    buckets = bucketed.prepare(batch, budget)
    assert sorted(span.request for bucket in buckets for span in bucket) == [
        span.request for span in batch.spans()
    ]
    for bucket, following in zip(buckets, [*buckets[1:], []]):
        keys = max(span.num_blocks for span in bucket) * BLOCK_SIZE
        assert len(bucket) == 1 or len(bucket) * keys <= budget
        if following:
            assert (len(bucket) + 1) * following[0].num_blocks * BLOCK_SIZE > budget
