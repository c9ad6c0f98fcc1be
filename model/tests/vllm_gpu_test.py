"""vLLM on the GPU: each step is served by what the plan says, and as one unpaged forward would."""

from pathlib import Path

import pytest
import torch
from asynct_vllm import counters
from asynct_vllm.settings import settings
from random_checkpoint import random_config, random_tensors, save_checkpoint
from vllm_engine import (
    STEPS,
    engine,
    expected,
    generate,
    max_difference,
    random_prompts,
    reference_model,
    served,
)

pytestmark = pytest.mark.gpu

PROMPT_LENGTHS = (1, 2, 3, 15, 16, 17, 65, 127, 300, 520, 900)
GPU = dict(dtype="bfloat16", max_model_len=1024, max_num_batched_tokens=512)

# Environment, settings of the engine, and the kernels that have to serve.
CASES = {
    "graphs": ({}, dict(enforce_eager=False), {"hp1_decode_paged", "hp1_prefill_wgmma"}),
    "eager": ({}, dict(block_size=128), {"hp1_decode_paged", "hp1_prefill_wgmma"}),
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


@pytest.mark.parametrize("case", CASES)
def test_each_step_is_served_as_planned_and_right(case, checkpoint, monkeypatch):
    """Log-probabilities differ from float32's by at most twice what the bf16 model's differ."""
    environment, options, kernels = CASES[case]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    settings.cache_clear()
    counters.reset()
    with engine(checkpoint, **GPU, **options) as llm:
        prompts = random_prompts(PROMPT_LENGTHS)
        missed = generate(llm, prompts)
        counted = counters.snapshot()
        hit = generate(llm, prompts)
    settings.cache_clear()
    exact, plain = (reference_model(checkpoint, dtype).cuda()
                    for dtype in (torch.float32, torch.bfloat16))
    for name, outputs in (("missed", missed), ("hit", hit)):
        truth = expected(outputs, exact)
        error = max_difference(served(outputs), truth)
        allowed = 2 * max_difference(expected(outputs, plain), truth)
        print(f"{case}, cache {name}: max |dlogprob| {error:.1e}, allowed {allowed:.1e}")
        assert error <= allowed
    assert all(output.num_cached_tokens for output in hit if len(output.prompt_token_ids) > 128)
    assert kernels <= counted.keys() <= kernels | {"hp1_prefill_mma"}
    tokens = sum(len(output.prompt_token_ids) + STEPS - 1 for output in missed)
    assert sum(hits.tokens for hits in counted.values()) == tokens
