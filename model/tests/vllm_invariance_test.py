"""vLLM's batch-invariant mode on the GPU: a request's bits are the same whatever is beside it.

vLLM replaces PyTorch's products for the whole process, so these tests have one of their own.
"""

import pytest
from asynct_vllm import counters
from asynct_vllm.settings import settings
from device_engine import assert_right, device_checkpoint, device_engine
from vllm import RequestOutput
from vllm_engine import generate, random_prompts

pytestmark = pytest.mark.gpu

PROMPT_LENGTHS = (1, 3, 16, 65, 130, 300, 700)
TOKENS = 128  # of a step: chunks of a prompt depend on what is beside it


@pytest.fixture
def invariant(monkeypatch):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    settings.cache_clear()
    yield
    settings.cache_clear()


def bits(output: RequestOutput) -> list[dict[int, float]]:
    """The likeliest tokens of each step, and their log-probabilities."""
    return [{token: entry.logprob for token, entry in step.items()}
            for step in output.outputs[0].logprobs]


@pytest.mark.parametrize("eager", (False, True), ids=("graphs", "eager"))
def test_a_request_has_the_same_bits_alone_and_in_a_batch(eager, invariant, tmp_path, seed):
    checkpoint = device_checkpoint(tmp_path / "checkpoint", seed)
    prompts = random_prompts(PROMPT_LENGTHS)
    with device_engine(checkpoint, enforce_eager=eager, enable_prefix_caching=False,
                       max_num_batched_tokens=TOKENS) as llm:
        alone = [output for prompt in prompts for output in generate(llm, [prompt])]
        together = generate(llm, prompts)
        kernels = counters.snapshot().keys()
    assert kernels == {"hp1_prefill_mma"}
    for first, second in zip(alone, together, strict=True):
        assert first.outputs[0].token_ids == second.outputs[0].token_ids
        assert bits(first) == bits(second)
    assert_right(together, checkpoint, "batch-invariant")
