"""The builder: indices once a step, no reading back from the device, and both model runners."""

from unittest import mock

import pytest
import torch
from comparison import check, every_path, random_gate
from synthetic_step import SyntheticStep
from vllm.v1.attention.backend import AttentionCGSupport

from asynct_vllm import builder, counters
from asynct_vllm.builder import AsyncTMetadataBuilder
from asynct_vllm.settings import Settings
from asynct_vllm.torch_paths import PATHS

QUERY_LENS, PREFIX_LENS = (1, 17, 5, 40), (33, 15, 60, 0)


@pytest.fixture
def step(seed) -> SyntheticStep:
    return SyntheticStep.make(QUERY_LENS, PREFIX_LENS)


@every_path
def test_prepares_once_a_step_for_all_layers(path, step):
    gate, num_layers = random_gate(4), 5
    prepare = mock.Mock(wraps=PATHS[path].prepare)
    attend = mock.Mock(wraps=PATHS[path].attend)
    with mock.patch.multiple(PATHS[path], prepare=prepare, attend=attend):
        metadata = step.build(Settings(path))
        for _ in range(num_layers):
            step.impl(gate).forward(
                None, step.query, None, None, step.kv_cache, metadata, step.query.clone()
            )
    assert prepare.call_count == 1
    assert attend.call_count == num_layers
    for call in attend.call_args_list:
        assert call.args[4] is metadata.work.batch
        assert call.args[5] is metadata.work.prepared


@every_path
def test_never_reads_the_device(path, step):
    """On the meta device any read back raises: the builder needs only what the host knows."""
    step.common.query_start_loc = step.common.query_start_loc.to("meta")
    step.common.seq_lens = step.common.seq_lens.to("meta")
    step.common.block_table_tensor = step.common.block_table_tensor.to("meta")
    counters.reset()
    metadata = step.build(Settings(path, 300))
    counters.reset()
    assert metadata.work.batch.positions.device.type == "meta"
    assert metadata.work.batch.positions.shape == (sum(QUERY_LENS),)


@every_path
def test_rows_of_stale_and_padded_requests(path, step):
    """As V1 pads (query_start_loc repeats, lengths 0) and V2 leaves table tails (stale entries)."""
    common = step.common
    common.num_reqs += 2
    for name in ("query_start_loc", "query_start_loc_cpu"):
        starts = getattr(common, name)
        setattr(common, name, torch.cat((starts, starts[-1:].expand(2))))
    for name in ("seq_lens", "seq_lens_cpu_upper_bound"):
        setattr(common, name, torch.nn.functional.pad(getattr(common, name), (0, 2)))
    stale = torch.full((2, common.block_table_tensor.shape[1]), 10**9, dtype=torch.int32)
    common.block_table_tensor = torch.cat((common.block_table_tensor, stale))
    check(step, random_gate(4), Settings(path))


@every_path
def test_lengths_known_only_by_their_maximum(path, step):
    step.common.seq_lens_cpu_upper_bound = None
    check(step, random_gate(4), Settings(path))


@every_path
def test_bounds_beyond_the_block_table(path, step):
    """Dummy steps may claim more tokens than max_model_len, as wide as the table is."""
    step.common.seq_lens_cpu_upper_bound.fill_(10**6)
    check(step, random_gate(4), Settings(path))


def test_keeps_no_scheduler_buffer(step):
    """vLLM reuses its buffers for the next step, while this one may still run."""
    gate = random_gate(4)
    expected = step.run(gate, Settings())
    metadata = step.build(Settings())
    common = step.common
    for buffer in (
        common.query_start_loc,
        common.query_start_loc_cpu,
        common.seq_lens,
        common.seq_lens_cpu_upper_bound,
        common.block_table_tensor,
    ):
        buffer.fill_(0)
    output = torch.full_like(step.query, float("nan"))
    step.impl(gate).forward(None, step.query, None, None, step.kv_cache, metadata, output)
    assert torch.equal(output, expected)


@pytest.mark.parametrize("causal", (False, torch.tensor([True, False, True, True])))
def test_refuses_what_is_not_causal(causal, step):
    step.common.causal = causal
    with pytest.raises(ValueError, match="causal"):
        step.build(Settings())


@pytest.mark.parametrize(("capability", "support"), (
    (None, AttentionCGSupport.NEVER),
    ((9, 0), AttentionCGSupport.UNIFORM_BATCH),
))
def test_claims_graphs_where_a_kernel_serves_decodes(capability, support, step, monkeypatch):
    monkeypatch.setattr(builder, "capability_of", lambda device: capability)
    claimed = AsyncTMetadataBuilder.get_cudagraph_support(
        step.vllm_config(dtype=torch.bfloat16), step.kv_cache_spec())
    assert claimed is support
