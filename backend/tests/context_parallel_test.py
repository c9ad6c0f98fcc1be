"""Keys shared among ranks: the ranks' outputs add up to unpaged attention, with no exchange."""

import random

import pytest
import torch
from comparison import TOLERANCE, every_path, random_gate
from sharded_run import Case, ShardedRun, vllm_config

from asynct_vllm import builder
from asynct_vllm.context_parallel import builder as context_parallel_builder
from asynct_vllm.context_parallel import impl as context_parallel_impl
from asynct_vllm.context_parallel.impl import ContextParallelImpl
from asynct_vllm.context_parallel.shard import Shard
from asynct_vllm.kv_cache import NO_SLOT
from asynct_vllm.plan import PREFILL_FRESH, Plan
from asynct_vllm.settings import Settings


def _steps(rng: random.Random, requests: int) -> list[list[int]]:
    """Chunks of prompts, then decodes, one request's prompt beside the others' decodes."""
    chunks = [[rng.choice((1, 2, 3, 17, 40)) for _ in range(requests)] for _ in range(3)]
    return chunks + [[1] * requests] * 4 + [[1] * (requests - 1) + [30]]


def run(case: Case, rng: random.Random, settings: Settings = Settings(), **changes) -> float:
    """The largest error of any step over the largest output, after every check but that."""
    steps = _steps(rng, 4)
    lengths = [sum(tokens) for tokens in zip(*steps)]
    sharded = ShardedRun(case, random_gate(case.heads, **changes), lengths, settings)
    worst = 0.0
    for tokens in steps:
        output, reference = sharded.step(tokens, slack=rng.choice((0, 7)))
        worst = max(worst, ((output - reference).abs().max() / reference.abs().max()).item())
    return worst


@pytest.mark.parametrize("block_size,interleave", (
    (16, 1), (16, 2), (16, 16), (32, 8), (64, 16), (128, 128)))
@pytest.mark.parametrize("ranks", (2, 3, 4))
def test_ranks_add_up(ranks, block_size, interleave, seed):
    case = Case(ranks, interleave, block_size, heads=12)
    assert run(case, random.Random(seed)) <= TOLERANCE


@every_path
def test_every_path(path, seed):
    assert run(Case(interleave=4), random.Random(seed), Settings(path, 300)) <= TOLERANCE


@pytest.mark.parametrize("changes", (
    *({"window": window} for window in (1, 2, 4, 8)),
    {"window": 4, "weights": (0.5, -0.25, 0.125, 1.0)},
    {"relu_pre": False},
    {"clip": (0.25, 0.75)},
    {"alpha": torch.full((4,), -12.0), "clip": (-0.5, 2.0)},
), ids=str)
@pytest.mark.parametrize("interleave", (1, 4))
def test_gates(interleave, changes, seed):
    assert run(Case(interleave=interleave), random.Random(seed), **changes) <= TOLERANCE


@pytest.mark.parametrize("broken", (
    {"halo": property(lambda shard: 0)},
    {"owns": lambda shard, positions: shard.stores(positions)},
    {"_start": property(lambda shard: shard.rank * shard.interleave - shard.halo + 1)},
), ids=("no halo", "halo values", "shifted"))
def test_a_broken_share_shows(broken, seed, monkeypatch):
    for name, value in broken.items():
        monkeypatch.setattr(Shard, name, value)
    assert run(Case(interleave=4), random.Random(seed)) > 100 * TOLERANCE


def test_half_precision_costs_a_rounding_a_rank(seed):
    case = Case(ranks=4, interleave=16, heads=8, dtype=torch.bfloat16)
    assert run(case, random.Random(seed)) <= 4 * torch.finfo(torch.bfloat16).eps


def _reference_serves(monkeypatch, fresh: str = "reference") -> None:
    """The reference kernel, which runs anywhere, stands in for those of a GPU."""
    monkeypatch.setattr(builder, "plan", lambda shape, *_: Plan(
        None, "reference" if shape.num_decodes else None,
        (fresh if shape.fresh else "reference") if shape.num_prefills else None, "a test"))


def test_kernels_add_up(seed, monkeypatch):
    """Chunks are served token by token, in calls of some tokens each."""
    _reference_serves(monkeypatch)
    monkeypatch.setattr(context_parallel_builder, "_CALL_TOKENS", 7)
    case = Case(ranks=2, interleave=4, dtype=torch.bfloat16)
    assert run(case, random.Random(seed)) <= 4 * torch.finfo(torch.bfloat16).eps


def test_fresh_prompts_need_no_other_rank(seed, monkeypatch):
    _reference_serves(monkeypatch, PREFILL_FRESH)
    sharded = ShardedRun(Case(ranks=3, heads=6), random_gate(6), [9, 70, 3], Settings())
    sharded.seen[0] = 8
    work = sharded.ranks[1].build(sharded.advance([1, 70, 3])[0]).work
    assert work.tokens == 1
    (decodes,), (prompts,) = work.partial.calls, work.fresh.calls
    assert decodes.seq_lens.tolist() == sharded.ranks[1].builder.rows.lengths[:1].tolist()
    assert prompts.rows == slice(1, 74) and prompts.fresh
    assert prompts.seq_lens.tolist() == [70, 3]
    assert prompts.block_table.shape[1] == 3 * sharded.table.shape[1]  # the ranks' room together


def test_padded_rows_store_and_see_nothing(seed):
    """As graphs have them: requests of no token, tokens of no request."""
    rows = ShardedRun(Case(), random_gate(4), [3, 3], Settings()).ranks[0].builder.rows
    rows.fill(4, torch.tensor([0, 0, 0], dtype=torch.int32), torch.zeros(2, dtype=torch.int32),
              torch.full((2, 1), 2**31 - 1, dtype=torch.int32))
    assert (rows.slots == NO_SLOT).all()
    assert (rows.visible == 0).all() and (rows.lengths == 0).all()


@pytest.mark.parametrize("ranks", (2, 4))
@pytest.mark.parametrize("interleave", (1, 16))
def test_bytes(ranks, interleave, seed):
    """A token's queries and one sum cross; softmax needs a log-sum-exp of each head beside them."""
    case = Case(ranks, interleave, heads=8)
    sharded = ShardedRun(case, random_gate(8), [50, 50], Settings())
    sharded.step([49, 49])
    sent = [rank.group.bytes_sent for rank in sharded.ranks]
    sharded.step([1, 1])
    row = 8 // ranks * 32 * 4
    for rank, before in zip(sharded.ranks, sent):
        assert rank.group.bytes_sent - before == 2 * 2 * (ranks - 1) * row


@pytest.mark.parametrize("part,changes,words", (
    ("parallel_config", {"tensor_parallel_size": 3}, "decode_context_parallel_size=2"),
    ("parallel_config", {"dcp_comm_backend": "a2a"}, "dcp_comm_backend='a2a'"),
    ("parallel_config", {"data_parallel_size": 2}, "data_parallel_size=2"),
    (None, {"kv_transfer_config": object()}, "kv_transfer_config is given"),
    (None, {"speculative_config": object()}, "speculative_config is given"),
))
def test_refuses_what_would_be_wrong(part, changes, words, monkeypatch):
    config = vllm_config(Case())
    for name, value in changes.items():
        setattr(config if part is None else getattr(config, part), name, value)
    monkeypatch.setattr(context_parallel_impl, "get_current_vllm_config", lambda: config)
    with pytest.raises(ValueError, match=f"cannot share keys among ranks: {words}"):
        ContextParallelImpl(4, 32, 1 / 32, 1, gate=random_gate(4))


@pytest.mark.parametrize("interleave,rows", ((1, 32), (2, 32), (4, 24), (8, 20), (16, 18)))
def test_pages_hold_the_halo(interleave, rows):
    """By how much a cache grows: K - 1 rows a run, at most to what one rank would hold."""
    shard = Shard(0, 2, interleave, 3)
    assert shard.block_rows(16) == rows
