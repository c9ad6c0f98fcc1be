"""Keys shared among ranks on a GPU: one card computes the ranks' shares in turn, by the kernels."""

import dataclasses

import pytest
import torch
from comparison import random_gate
from sharded_run import Case, ShardedRun

from asynct_vllm.settings import Settings

pytestmark = pytest.mark.gpu

# Fresh prompts, short and long; a chunk beside decodes; decodes.
STEPS = ([300, 1, 70, 17], [1, 1, 40, 1], *([[1, 1, 1, 1]] * 20))
LENGTHS = [sum(tokens) for tokens in zip(*STEPS)]


def case(ranks: int, interleave: int = 16, block_size: int = 128) -> Case:
    return Case(ranks, interleave, block_size, heads=12, size=128, dtype=torch.bfloat16,
                device="cuda")


def start(shape: Case) -> ShardedRun:
    torch.manual_seed(torch.initial_seed())  # the same tokens, however they are shared
    gate = random_gate(shape.heads)
    gate = dataclasses.replace(gate, **{
        name: getattr(gate, name).cuda() for name in ("sigma", "alpha", "gamma")})
    return ShardedRun(shape, gate, LENGTHS, Settings())


def errors(sharded: ShardedRun) -> list[float]:
    """Of each step, over its largest output."""
    found = []
    for tokens in STEPS:
        output, reference = sharded.step(tokens)
        found.append(((output - reference).abs().max() / reference.abs().max()).item())
    return found


@pytest.mark.parametrize("ranks,interleave,block_size", (
    (2, 1, 16), (2, 8, 64), (2, 16, 128), (2, 128, 1024), (3, 1, 16), (4, 16, 128)))
def test_kernels_add_up(ranks, interleave, block_size, seed):
    alone = max(errors(start(case(1))))
    sharded = start(case(ranks, interleave, block_size))
    shared = max(errors(sharded))
    print(f"{ranks} ranks: {shared:.1e} of the largest output, one rank: {alone:.1e}")
    assert shared <= 3 * alone


def test_served_as_planned(seed):
    sharded = start(case(2))
    plans = [sharded.ranks[0].build(sharded.advance(tokens)[0]).plan for tokens in STEPS]
    assert (plans[0].decode, plans[0].prefill) == (None, "hp1_prefill_super_page")
    assert (plans[1].decode, plans[1].prefill) == ("hp1_decode_paged",) * 2
    assert (plans[2].decode, plans[2].prefill) == ("hp1_decode_paged", None)


def test_one_graph_serves_every_length(seed):
    """Captured at the first decode; blocks and the halo's places change under it."""
    sharded = start(case(2, interleave=1, block_size=16))
    for tokens in STEPS[:2]:
        sharded.step(tokens)
    static, fresh, _ = sharded.advance(STEPS[2])
    graphs, partials = [], []
    for rank in sharded.ranks:
        metadata = rank.build(static)
        rank.forward(metadata, *fresh)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            partials.append(rank.forward(metadata, *fresh)[0])
        graphs.append(graph)
    for tokens in STEPS[3:]:
        common, new, reference = sharded.advance(tokens)
        static.seq_lens.copy_(common.seq_lens)
        for tensor, values in zip(fresh, new):
            tensor.copy_(values)
        for rank, graph in zip(sharded.ranks, graphs):
            rank.build(static)
            graph.replay()
        error = (sum(partials) - reference).abs().max() / reference.abs().max()
        assert error <= 4 * torch.finfo(torch.bfloat16).eps


def test_the_same_bits_again(seed):
    outputs = []
    for _ in range(2):
        sharded = start(case(2))
        outputs.append([sharded.step(tokens)[0] for tokens in STEPS])
    for first, second in zip(*outputs):
        assert torch.equal(first, second)
