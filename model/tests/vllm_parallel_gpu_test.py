"""vLLM on two GPUs: heads shared, keys shared, as one card serves them and one unpaged forward."""

import counting_worker
import pytest
import torch
from device_engine import device_checkpoint, device_engine
from vllm_engine import (
    expected,
    generate,
    random_prompts,
    reference_model,
    root_mean_square,
    served,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]

PROMPT_LENGTHS = (1, 2, 3, 15, 16, 17, 65, 127, 300, 520, 900)
KERNELS = {"hp1_decode_paged", "hp1_prefill_wgmma", "hp1_prefill_mma", "hp1_prefill_super_page"}

# KV heads, and settings of the engine.
CASES = {
    "heads": (2, dict(tensor_parallel_size=2)),
    "replicated KV head": (1, dict(tensor_parallel_size=2)),
    "keys by ones": (1, dict(tensor_parallel_size=2, decode_context_parallel_size=2)),
    "keys by 16": (1, dict(tensor_parallel_size=2, decode_context_parallel_size=2,
                           cp_kv_cache_interleave_size=16, block_size=128)),
}


@pytest.mark.parametrize("case", CASES)
def test_two_cards_serve_as_one(case, tmp_path, seed):
    kv_heads, settings = CASES[case]
    checkpoint = device_checkpoint(tmp_path / "checkpoint", seed, num_key_value_heads=kv_heads)
    worker = counting_worker.CountingWorker
    prompts = random_prompts(PROMPT_LENGTHS)
    with device_engine(checkpoint, enforce_eager=False, **settings,
                       worker_extension_cls=f"{worker.__module__}.{worker.__qualname__}") as llm:
        missed, hit = generate(llm, prompts), generate(llm, prompts)
        counted = llm.collective_rpc("attention_tokens")
    with device_engine(checkpoint) as llm:  # eager: a second graph would show nothing more
        alone = generate(llm, prompts)
    exact, plain = (reference_model(checkpoint, dtype).cuda()
                    for dtype in (torch.float32, torch.bfloat16))
    errors = {name: root_mean_square(served(outputs), expected(outputs, exact))
              for name, outputs in (("missed", missed), ("hit", hit), ("one card", alone))}
    truth = expected(missed, exact)
    errors["plain bfloat16"] = root_mean_square(expected(missed, plain), truth)
    same = sum(two.outputs[0].token_ids == one.outputs[0].token_ids
               for two, one in zip(missed, alone))
    print(f"{case}: dlogprob {errors}; the same tokens for {same} of {len(prompts)} prompts; "
          f"tokens by {counted}")
    assert max(errors["missed"], errors["hit"]) <= 2 * errors["plain bfloat16"]
    assert all(paths and paths.keys() <= KERNELS for paths in counted)
    assert all(output.num_cached_tokens for output in hit if len(output.prompt_token_ids) > 256)
