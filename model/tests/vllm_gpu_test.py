"""vLLM on the GPU: each step is served by what the plan says, and as one unpaged forward would."""

import dataclasses
from pathlib import Path

import pytest
from asynct_kernels import gemm
from asynct_vllm import counters, kernel_work
from asynct_vllm.settings import settings
from device_engine import device_checkpoint, device_engine, errors
from vllm_engine import STEPS, generate, random_prompts

pytestmark = pytest.mark.gpu

PROMPT_LENGTHS = (1, 2, 3, 15, 16, 17, 65, 127, 300, 520, 900)

WGMMA = {"hp1_decode_paged", "hp1_prefill_wgmma", "hp1_prefill_super_page"}

# Environment, settings of the engine, and the kernels that have to serve. Without a prefix cache the
# decodes' kernel also does DyHT, RoPE and the cache write.
CASES = {
    "graphs": ({}, dict(enforce_eager=False), WGMMA),
    "graphs, uncached": ({}, dict(enforce_eager=False, enable_prefix_caching=False), WGMMA),
    "eager": ({}, dict(block_size=128), WGMMA),
    "eager, uncached": ({}, dict(enable_prefix_caching=False), WGMMA),
    "mma": ({"VLLM_HP1_PREFILL_WGMMA": "0"}, {}, {"hp1_decode_paged", "hp1_prefill_mma"}),
    "triton": ({"VLLM_HP1_USE_CUDA": "0"}, {}, {"triton_decode", "triton_prefill"}),
    "PyTorch": ({"VLLM_HP1_TORCH_PATH": "gather"}, {}, {"gather"}),
}


@pytest.fixture
def checkpoint(tmp_path: Path, seed: int) -> Path:
    return device_checkpoint(tmp_path / "checkpoint", seed)


@pytest.mark.parametrize("case", CASES)
def test_each_step_is_served_as_planned_and_right(case, checkpoint, monkeypatch):
    environment, options, kernels = CASES[case]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    settings.cache_clear()
    prompts = random_prompts(PROMPT_LENGTHS)
    with device_engine(checkpoint, **options) as llm:
        missed = generate(llm, prompts)
        counted = counters.snapshot()
        hit = generate(llm, prompts)
    settings.cache_clear()
    for cache, outputs in (("missed", missed), ("hit", hit)):
        error, plain = errors(outputs, checkpoint)
        print(f"{case}, cache {cache}: dlogprob {error:.1e}, of plain bfloat16 {plain:.1e}")
        assert error <= 2 * plain
    if options.get("enable_prefix_caching", True):
        assert all(output.num_cached_tokens for output in hit if len(output.prompt_token_ids) > 128)
    assert kernels <= counted.keys() <= kernels | {"hp1_prefill_mma"}
    # Scheduled ahead of its answers, a request may run a few steps past its end.
    tokens = sum(len(output.prompt_token_ids) + STEPS - 1 for output in missed)
    assert tokens <= sum(hits.tokens for hits in counted.values()) <= tokens + 3 * len(prompts)


def test_projections_may_compute_what_follows_them(checkpoint, monkeypatch):
    """One kernel for each, in steps and graphs of every size: the plan wants large ones."""
    rows = set()
    monkeypatch.setattr(gemm, "fuses", lambda count, *_: not rows.add(count))
    with device_engine(checkpoint, enforce_eager=False) as llm:
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    assert len(rows) > 3
    error, plain = errors(outputs, checkpoint)
    print(f"one kernel: dlogprob {error:.1e}, of plain bfloat16 {plain:.1e}")
    assert error <= 2 * plain


def test_broken_attention_shows(checkpoint, monkeypatch):
    """Without sigma in the decodes' kernel alone, the comparison turns red."""
    attend = kernel_work.KernelCall.attend

    def without_sigma(call, layer, *told):
        if call.max_query_len == 1:
            gate = dataclasses.replace(layer.gate, sigma=layer.gate.sigma * 0)
            layer = dataclasses.replace(layer, gate=gate)
        attend(call, layer, *told)

    monkeypatch.setattr(kernel_work.KernelCall, "attend", without_sigma)
    with device_engine(checkpoint) as llm:
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    error, plain = errors(outputs, checkpoint)
    print(f"no sigma: dlogprob {error:.1e}, of plain bfloat16 {plain:.1e}")
    assert error > 4 * plain
