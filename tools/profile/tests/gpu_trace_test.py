"""Traces written by hand, whose steps, gaps and sums are known."""

import random

import gpu_trace
import pytest
from handwritten_trace import Trace
from kernel_kinds import kind_of

LAYERS = 3


@pytest.fixture
def rng(seed):
    return random.Random(seed)


def decode_trace():
    trace = Trace()
    # Launched before the first annotation: belongs to no step.
    trace.launch(10.0, [("nvjet_before", 12.0, 4.0)])
    trace.step(100.0, (4, 400, 0, 0))
    trace.launch(101.0, [("nvjet_tst", 110.0, 30.0)])
    trace.launch(102.0, [("triton_red_fused_mean_pow_rsqrt_1", 140.0, 10.0)])
    for i, gap in enumerate((100.0, 120.0, 140.0)):
        start = 1000.0 * (i + 1)
        trace.step(start, (0, 0, 4, 4))
        layer = [(name, start + 60.0 * n + offset, dur) for n in range(LAYERS)
                 for name, offset, dur in (("nvjet_tst", 10.0, 20.0),
                                           ("flash::FlashAttnFwdSm90", 25.0, 10.0))]
        trace.launch(start + 2.0, layer, call="cudaGraphLaunch")
        # After the annotation's end, before the next: the sampler, ended by a copy to the host.
        end = start + 1000.0 - gap if i < 2 else start + 400.0
        trace.launch(start + 300.0, [("_gumbel_sample_kernel", end + 10.0 - 5.0, 5.0)])
        trace.launch(start + 301.0, [("Memcpy DtoH", end + 20.0, 500.0)], call="cudaMemcpyAsync",
                     cat="gpu_memcpy")
    return trace


def test_steps_take_what_they_launch(tmp_path, rng):
    steps = gpu_trace.read_steps(decode_trace().write(tmp_path / "x.json.gz", rng))
    assert [step.phase for step in steps] == ["prefill", "decode", "decode", "decode"]
    assert {work.name for work in steps[0].work} == {"nvjet_tst", "triton_red_fused_mean_pow_rsqrt_1"}
    assert [len(step.work) for step in steps] == [2] + [2 * LAYERS + 2] * 3
    assert sum(work.in_graph for work in steps[1].work) == 2 * LAYERS


def test_summary_of_decode_steps(tmp_path, rng):
    steps = gpu_trace.read_steps(decode_trace().write(tmp_path / "x.json.gz", rng))
    decode = gpu_trace.summarise(steps, LAYERS)["decode"]
    assert (decode["steps"], decode["tokens"]) == (3, 4)
    assert decode["kinds"]["gemm"] == pytest.approx({"us": 60.0, "launches": 3.0})
    assert decode["kinds"]["attention"] == pytest.approx({"us": 30.0, "launches": 3.0})
    assert decode["kinds"]["sampler"] == pytest.approx({"us": 5.0, "launches": 1.0})
    # 20 us GEMMs and 10 us attention overlap by 5 us, in three layers; then sampler and copy.
    assert decode["busy_us"] == pytest.approx(3 * 25.0 + 5.0 + 500.0)
    # From the end of the sampler, at `gap` - 10 before the next step's mark, to its first kernel.
    assert decode["gap_us"] == pytest.approx((100.0 + 120.0) / 2)
    # From the first layer's GEMM, at 10, to the end of the third's attention, at 155.
    assert decode["graph_us_per_layer"] == pytest.approx(145.0 / LAYERS)
    assert gpu_trace.summarise(steps, LAYERS)["prefill"]["graph_us_per_layer"] is None
    assert gpu_trace.full_step(steps) is steps[1] and gpu_trace.full_step(steps[:1]) is steps[0]
    assert decode["launches"] == 2 * LAYERS + 2
    assert decode["launches_per_layer"] == 2
    assert decode["in_graph"] == 2 * LAYERS


def test_ramp_steps_are_left_out(tmp_path, rng):
    trace = Trace()
    for start, requests in ((0.0, 1), (1000.0, 8), (2000.0, 8), (3000.0, 2)):
        trace.step(start, (0, 0, requests, requests))
        trace.launch(start + 1.0, [("nvjet", start + 10.0, 10.0 * requests)])
    summary = gpu_trace.summarise(gpu_trace.read_steps(trace.write(tmp_path / "x.json.gz", rng)), 1)
    assert summary["decode"]["steps"] == 2
    assert summary["decode"]["busy_us"] == pytest.approx(80.0)
    assert summary["decode"]["gap_us"] == pytest.approx(1000.0 - 80.0)


def test_a_trace_without_gpu_work_is_refused(tmp_path, rng):
    trace = Trace()
    trace.step(0.0, (1, 5, 0, 0))
    with pytest.raises(ValueError, match="no step with GPU work"):
        gpu_trace.read_steps(trace.write(tmp_path / "x.json.gz", rng))


@pytest.mark.parametrize(("name", "kind"), [
    ("nvjet_tst_128x64_64x12_2x1_v_bz_TNT", "gemm"),
    ("void cublasLt::splitKreduce_kernel<32, 16, int>(...)", "gemm"),
    ("void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<...>>>",
     "attention"),
    ("void flash::prepare_varlen_num_blocks_kernel<1, true>(int)", "attention"),
    ("void cutlass::device_kernel<flash::FlashAttnFwdCombine<...>>", "attention"),
    ("void asynct::decode::DecodePagedKernel<...>(DecodeParams)", "attention decode"),
    ("void asynct::prefill_mma::HP1PrefillMmaKernel<...>(...)", "attention prefill"),
    ("void asynct::prefill_wgmma::Kernel<...>(...)", "attention prefill"),
    ("void asynct::(anonymous namespace)::GatherPagesKernel<...>(...)", "attention prefill"),
    ("asynct::(anonymous namespace)::DecodeScheduleKernel(int const*)", "attention decode"),
    ("attend_tiles", "attention"),
    ("void vllm::reshape_and_cache_flash_kernel<...>", "cache write"),
    ("void asynct::PostAttnPreMlpUclipOutKernel<...>(...)", "norm"),
    ("void asynct::QkUclipNormKernel<...>(...)", "norm"),
    ("void asynct::(anonymous namespace)::QkNormRopeCacheKernel<...>(...)", "norm"),
    ("void asynct::ReluAndMulKernel<...>(...)", "activation"),
    ("triton_poi_fused_mul_silu_slice_1", "activation"),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2", "norm"),
    ("triton_red_fused__to_copy_add_cat_index_select_mean_mul_pow_rsqrt_split_sub_3", "rope"),
    ("_gumbel_sample_kernel", "sampler"),
    ("_prepare_pos_seq_lens_kernel", "step inputs"),
    ("Memcpy HtoD (Pinned -> Device)", "copy"),
    ("something_else", "other"),
])
def test_kinds(name, kind):
    assert kind_of(name) == kind
