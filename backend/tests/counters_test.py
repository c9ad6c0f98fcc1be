"""Counting: each path by steps and tokens, without dummy steps and padded tokens."""

import pytest
import torch
from comparison import random_gate
from synthetic_step import SyntheticStep

from asynct_vllm import counters
from asynct_vllm.counters import Hits
from asynct_vllm.settings import Settings


@pytest.fixture(autouse=True)
def fresh_totals():
    counters.reset()
    yield
    counters.reset()


def test_counts_steps_and_tokens_by_path():
    step = SyntheticStep.make((3, 1), (14, 31))
    step.build(Settings("gather"))
    step.build(Settings("loop"))
    SyntheticStep.make((7,), (0,)).build(Settings("gather"))
    assert counters.snapshot() == {"gather": Hits(2, 11), "loop": Hits(1, 4)}


def test_dummy_steps_and_padded_tokens_do_not_count():
    step = SyntheticStep.make((3, 1), (14, 31))
    common = step.common
    common.num_reqs += 2
    for name in ("query_start_loc", "query_start_loc_cpu"):
        starts = getattr(common, name)
        setattr(common, name, torch.cat((starts, starts[-1:].expand(2))))
    for name in ("seq_lens", "seq_lens_cpu_upper_bound", "block_table_tensor"):
        rows = getattr(common, name)
        setattr(common, name, torch.cat((rows, torch.zeros_like(rows[:2]))))
    common.slot_mapping = torch.nn.functional.pad(common.slot_mapping, (0, 2), value=-1)
    step.build(Settings("gather"))
    common.slot_mapping.fill_(-1)
    step.build(Settings("gather"))
    step.build(Settings("padded"))
    assert counters.snapshot() == {"gather": Hits(1, 4)}


def test_counts_where_a_rank_keeps_only_some_keys():
    step = SyntheticStep.make((3, 1), (14, 31))
    step.common.slot_mapping[0] = -1
    step.build(Settings("gather"))
    assert counters.snapshot() == {"gather": Hits(1, 4)}


def test_layers_do_not_count(seed):
    step = SyntheticStep.make((3, 1), (14, 31))
    metadata = step.build(Settings("gather"))
    impl = step.impl(random_gate(4))
    for _ in range(3):
        impl.forward(None, step.query, None, None, step.kv_cache, metadata, step.query.clone())
    assert counters.snapshot() == {"gather": Hits(1, 4)}


def test_reset():
    SyntheticStep.make((1,), (1,)).build(Settings())
    counters.reset()
    assert counters.snapshot() == {}


def test_counts_inside_and_outside_inference_mode():
    with torch.inference_mode():
        SyntheticStep.make((1,), (1,)).build(Settings())
    SyntheticStep.make((1,), (1,)).build(Settings())
    assert counters.snapshot() == {"gather": Hits(2, 2)}
