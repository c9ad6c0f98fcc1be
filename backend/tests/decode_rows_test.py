"""Decodes of 1 + k query tokens: a row a token, for every step and every replay of a graph."""

import dataclasses

import pytest
import torch
from comparison import random_gate
from synthetic_step import SyntheticStep, reference_plan

from asynct_vllm import builder, counters
from asynct_vllm.counters import Hits
from asynct_vllm.decode_rows import DecodeRows
from asynct_vllm.kernel_work import KernelWork
from asynct_vllm.metadata import LayerTensors
from asynct_vllm.settings import Settings

SPECULATED = 3


@pytest.fixture(autouse=True)
def reference_serves(monkeypatch):
    monkeypatch.setattr(builder, "plan", reference_plan)
    counters.reset()
    yield
    counters.reset()


def make(query_lens, prefix_lens) -> SyntheticStep:
    step = SyntheticStep.make(query_lens, prefix_lens, dtype=torch.bfloat16)
    return dataclasses.replace(step, speculated=SPECULATED)


def assert_near(output: torch.Tensor, exact: torch.Tensor) -> None:
    assert (output.double() - exact).abs().max() <= 2**-7 * exact.abs().max()


@pytest.mark.parametrize(
    "query_lens, prefix_lens",
    (
        ((4, 4, 4), (33, 13, 1)),
        ((1, 2, 4, 3), (15, 16, 0, 30)),
        ((1, 3, 4, 5, 40), (33, 14, 16, 60, 0)),
        ((1,), (0,)),
    ),
)
def test_steps_match_unpaged_attention(query_lens, prefix_lens, seed):
    step, gate = make(query_lens, prefix_lens), random_gate(4)
    assert_near(step.run(gate, Settings()), step.reference(gate))


def test_each_token_is_a_decode_of_its_own_length(seed):
    step = make((1, 3, 4, 5), (33, 14, 16, 60))
    decodes, prefills = step.build(Settings()).work.calls
    assert (decodes.rows, prefills.rows) == (slice(0, 8), slice(8, 13))
    assert decodes.max_query_len == 1
    assert decodes.query_start_loc.tolist() == list(range(9))
    assert decodes.seq_lens.tolist() == [34, 15, 16, 17, 17, 18, 19, 20]
    table = step.common.block_table_tensor
    assert torch.equal(decodes.block_table, table[torch.tensor([0, 1, 1, 1, 2, 2, 2, 2])])
    assert counters.snapshot() == {"reference": Hits(2, 13)}


def test_a_captured_graph_reads_the_next_step(seed):
    """What one call was told of is laid out anew, padding included, in the place where it was."""
    gate = random_gate(4)
    captured, replayed = make((4, 4, 4), (0, 0, 0)), make((4, 4), (33, 13))
    for step in (captured, replayed):  # as wide as each other
        table = step.common.block_table_tensor
        step.common.block_table_tensor = torch.nn.functional.pad(
            table, (0, 8 - table.shape[1]), value=10**9)
    common = replayed.common
    common.num_reqs, common.num_actual_tokens = 3, 12
    for name in ("query_start_loc", "query_start_loc_cpu"):
        starts = getattr(common, name)
        setattr(common, name, torch.cat((starts, starts[-1:])))
    common.seq_lens = torch.nn.functional.pad(common.seq_lens, (0, 1))
    table = common.block_table_tensor
    common.block_table_tensor = torch.cat((table, table[:1]))
    common.slot_mapping = torch.nn.functional.pad(common.slot_mapping, (0, 4), value=-1)
    maker = captured.builder(Settings())
    (call,) = maker.build(0, captured.common).work.calls
    maker.decode_rows.seq_lens.fill_(10**6)  # as vLLM's sleep leaves it
    maker.decode_rows.query_start_loc.fill_(-1)
    maker.build(0, common)
    counters.reset()

    replayed.impl(gate).do_kv_cache_update(
        None, replayed.key, replayed.value, replayed.kv_cache, common.slot_mapping[:8])
    k_cache, v_cache = replayed.kv_cache.unbind(1)
    query = torch.cat((replayed.query, torch.full_like(replayed.query[:4], float("nan"))))
    output = torch.full_like(query, float("nan"))
    KernelWork((call,)).attend(LayerTensors(query, None, None, k_cache, v_cache, gate, output))
    assert_near(output[:8], replayed.reference(gate))
    assert (output[8:] == 0).all()


def test_lengths_below_the_queries_are_zero():
    """Dummy steps may have more queries than keys."""
    rows = DecodeRows.make(8, 2, torch.device("cpu")).fill(
        6, torch.tensor([0, 4, 4], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32),
        torch.zeros(2, 2, dtype=torch.int32))
    assert rows.seq_lens.tolist() == [0, 0, 0, 1, 0, 0]
