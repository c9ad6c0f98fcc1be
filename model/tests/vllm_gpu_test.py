"""vLLM on the GPU: each step is served by what the plan says, and as one unpaged forward would."""

import dataclasses
from pathlib import Path

import pytest
import torch
from asynct_kernels import gemm
from asynct_vllm import counters, kernel_work
from asynct_vllm.settings import settings
from random_checkpoint import random_config, random_tensors, save_checkpoint
from vllm import RequestOutput
from vllm_engine import (
    STEPS,
    engine,
    expected,
    generate,
    random_prompts,
    reference_model,
    root_mean_square,
    served,
)

pytestmark = pytest.mark.gpu

PROMPT_LENGTHS = (1, 2, 3, 15, 16, 17, 65, 127, 300, 520, 900)
GPU = dict(dtype="bfloat16", max_model_len=1024, max_num_batched_tokens=512,
           kv_cache_memory_bytes=1 << 30, gpu_memory_utilization=0.05)

WGMMA = {"hp1_decode_paged", "hp1_prefill_wgmma", "hp1_prefill_super_page"}

# Environment, settings of the engine, and the kernels that have to serve.
CASES = {
    "graphs": ({}, dict(enforce_eager=False), WGMMA),
    "eager": ({}, dict(block_size=128), WGMMA),
    "mma": ({"VLLM_HP1_PREFILL_WGMMA": "0"}, {}, {"hp1_decode_paged", "hp1_prefill_mma"}),
    "triton": ({"VLLM_HP1_USE_CUDA": "0"}, {}, {"triton_decode", "triton_prefill"}),
    "PyTorch": ({"VLLM_HP1_TORCH_PATH": "gather"}, {}, {"gather"}),
}


@pytest.fixture
def checkpoint(tmp_path: Path, seed: int) -> Path:
    config = random_config(head_dim=128, hidden_size=256)
    tensors = random_tensors(config, seed)
    for name in tensors:
        if name.endswith("self_attn.alpha"):
            tensors[name] *= 2  # Scores are narrower by as much as the heads are wider.
    return save_checkpoint(tmp_path / "checkpoint", config, tensors)


def errors(checkpoint: Path, outputs: list[RequestOutput]) -> tuple[float, float]:
    """How far vLLM's log-probabilities are from those of the float32 model, and how far the unpaged
    bfloat16 model's are, which rounds as often: root mean squares."""
    exact, plain = (expected(outputs, reference_model(checkpoint, dtype).cuda())
                    for dtype in (torch.float32, torch.bfloat16))
    return root_mean_square(served(outputs), exact), root_mean_square(plain, exact)


@pytest.mark.parametrize("case", CASES)
def test_each_step_is_served_as_planned_and_right(case, checkpoint, monkeypatch):
    environment, options, kernels = CASES[case]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    settings.cache_clear()
    counters.reset()
    prompts = random_prompts(PROMPT_LENGTHS)
    with engine(checkpoint, **GPU, **options) as llm:
        missed = generate(llm, prompts)
        counted = counters.snapshot()
        hit = generate(llm, prompts)
    settings.cache_clear()
    for cache, outputs in (("missed", missed), ("hit", hit)):
        error, plain = errors(checkpoint, outputs)
        print(f"{case}, cache {cache}: dlogprob {error:.1e}, of plain bfloat16 {plain:.1e}")
        assert error <= 2 * plain
    assert all(output.num_cached_tokens for output in hit if len(output.prompt_token_ids) > 128)
    assert kernels <= counted.keys() <= kernels | {"hp1_prefill_mma"}
    # Scheduled ahead of its answers, a request may run a few steps past its end.
    tokens = sum(len(output.prompt_token_ids) + STEPS - 1 for output in missed)
    assert tokens <= sum(hits.tokens for hits in counted.values()) <= tokens + 3 * len(prompts)


def test_projections_may_compute_what_follows_them(checkpoint, monkeypatch):
    """One kernel for each, in steps and graphs of every size: the plan wants large ones."""
    rows = set()
    monkeypatch.setattr(gemm, "fuses", lambda count, *_: not rows.add(count))
    with engine(checkpoint, **GPU, enforce_eager=False) as llm:
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    assert len(rows) > 3
    error, plain = errors(checkpoint, outputs)
    print(f"one kernel: dlogprob {error:.1e}, of plain bfloat16 {plain:.1e}")
    assert error <= 2 * plain


def test_broken_attention_shows(checkpoint, monkeypatch):
    """Without sigma in the decodes' kernel alone, the comparison turns red."""
    attend = kernel_work.KernelCall.attend

    def without_sigma(call, layer, *told):
        if call.max_query_len == 1:
            gate = dataclasses.replace(layer.gate, sigma=0.0)
            layer = dataclasses.replace(layer, gate=gate)
        attend(call, layer, *told)

    monkeypatch.setattr(kernel_work.KernelCall, "attend", without_sigma)
    with engine(checkpoint, **GPU) as llm:
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    error, plain = errors(checkpoint, outputs)
    print(f"no sigma: dlogprob {error:.1e}, of plain bfloat16 {plain:.1e}")
    assert error > 4 * plain
