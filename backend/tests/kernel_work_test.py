"""A step served by kernels: what each is told, with the reference kernel standing in for all."""

from unittest import mock

import pytest
import torch
from comparison import random_gate
from synthetic_step import SyntheticStep, reference_plan

from asynct_kernels.attention import PreparedCall
from asynct_vllm import builder, counters
from asynct_vllm.counters import Hits
from asynct_vllm.kernel_work import KernelWork
from asynct_vllm.metadata import LayerTensors
from asynct_vllm.plan import PREFILL_FRESH, Plan
from asynct_vllm.settings import Settings

QUERY_LENS, PREFIX_LENS = (1, 1, 1, 17, 5, 40), (33, 0, 63, 15, 60, 0)


@pytest.fixture(autouse=True)
def reference_serves(monkeypatch):
    monkeypatch.setattr(builder, "plan", reference_plan)
    counters.reset()
    yield
    counters.reset()


def assert_matches(step: SyntheticStep, output: torch.Tensor, gate) -> None:
    exact = step.reference(gate)
    # One rounding of the output, of which the largest is a few units in the last place.
    assert (output.double() - exact).abs().max() <= 2**-7 * exact.abs().max()


@pytest.mark.parametrize("requests", (slice(0, 6), slice(0, 3), slice(3, 6), slice(2, 4)))
def test_decodes_and_prefills_in_one_step(requests, seed):
    step = SyntheticStep.make(QUERY_LENS[requests], PREFIX_LENS[requests], dtype=torch.bfloat16)
    gate = random_gate(4)
    assert_matches(step, step.run(gate, Settings()), gate)


def test_each_part_is_told_of_its_own_requests(seed):
    step = SyntheticStep.make(QUERY_LENS, PREFIX_LENS, dtype=torch.bfloat16)
    decodes, prefills = step.build(Settings()).work.calls
    assert (decodes.rows, prefills.rows) == (slice(0, 3), slice(3, 65))
    assert decodes.query_start_loc.tolist() == [0, 1, 2, 3]
    assert prefills.query_start_loc.tolist() == [0, 17, 22, 62]
    assert prefills.seq_lens.tolist() == [32, 65, 40]
    assert (decodes.max_query_len, prefills.max_query_len) == (1, 40)
    assert counters.snapshot() == {"reference": Hits(2, 65)}


def test_decodes_keep_vllms_buffers(seed):
    """A captured graph reads what vLLM writes there for each replay."""
    step = SyntheticStep.make((1, 1), (33, 5), dtype=torch.bfloat16)
    (decodes,) = step.build(Settings()).work.calls
    for view, buffer in ((decodes.seq_lens, step.common.seq_lens),
                         (decodes.query_start_loc, step.common.query_start_loc),
                         (decodes.block_table, step.common.block_table_tensor)):
        assert view.data_ptr() == buffer.data_ptr()
    width = step.common.block_table_tensor.shape[1]
    assert decodes.max_seq_len == width * step.kv_cache.shape[2]


def test_fresh_prompts_are_told_this_steps_keys(seed, monkeypatch):
    step = SyntheticStep.make((1, 17, 40), (33, 0, 0), dtype=torch.bfloat16)
    gate = random_gate(4)
    shapes = []

    def plan(shape, layer, capability, settings):
        shapes.append(shape)
        return Plan(None, "reference", PREFILL_FRESH, "a test")

    monkeypatch.setattr(builder, "plan", plan)
    decodes, prefills = step.build(Settings()).work.calls
    assert shapes[0].fresh
    assert (decodes.fresh, prefills.fresh) == (False, True)
    assert prefills.max_seq_len == prefills.max_query_len == 40
    told = mock.Mock()
    with mock.patch.object(PreparedCall, "launch", told):
        KernelWork((prefills,)).attend(
            LayerTensors(step.query, step.key, step.value, None, None, gate, step.query))
    assert torch.equal(told.call_args.kwargs["key"], step.key[1:])
    assert torch.equal(told.call_args.kwargs["value"], step.value[1:])
    assert "slot_mapping" not in told.call_args.kwargs


@pytest.mark.parametrize("prefix_lens", ((33, 0, 1), (33, 16, 0)))
def test_a_prefix_or_a_bound_above_the_length_is_not_fresh(prefix_lens, seed, monkeypatch):
    shapes = []

    def plan(shape, layer, capability, settings):
        shapes.append(shape)
        return Plan(None, "reference", "reference", "a test")

    monkeypatch.setattr(builder, "plan", plan)
    SyntheticStep.make((1, 17, 40), prefix_lens, dtype=torch.bfloat16).build(Settings())
    SyntheticStep.make((1, 17, 40), (33, 0, 0), dtype=torch.bfloat16, slack=1).build(Settings())
    assert [shape.fresh for shape in shapes] == [False, False]


def test_requests_that_pad_a_graph(seed):
    step = SyntheticStep.make((1, 1), (33, 5), dtype=torch.bfloat16)
    gate = random_gate(4)
    common = step.common
    common.num_reqs += 2
    for name in ("query_start_loc", "query_start_loc_cpu"):
        starts = getattr(common, name)
        setattr(common, name, torch.cat((starts, starts[-1:].expand(2))))
    common.seq_lens = torch.nn.functional.pad(common.seq_lens, (0, 2))
    stale = torch.full((2, common.block_table_tensor.shape[1]), 10**9, dtype=torch.int32)
    common.block_table_tensor = torch.cat((common.block_table_tensor, stale))
    metadata = step.build(Settings())
    assert metadata.work.calls[0].seq_lens.shape == (4,)
    assert_matches(step, step.run(gate, Settings()), gate)
