"""The engine against one unpaged forward: chunks, mixed batches, prefix cache, preemption."""

import pytest
import torch
from asynct_kernels.reference import dense
from asynct_vllm import counters
from asynct_vllm.settings import settings
from attention_mutations import BLOCK_SIZE, MUTATIONS
from random_checkpoint import random_checkpoint
from vllm_engine import (
    BROKEN,
    STEPS,
    TOLERANCE,
    difference,
    engine,
    generate,
    random_prompts,
    recorded_steps,
    reference_model,
)
from vllm.inputs import TokensPrompt

# Prompts that share their first tokens with each other and with the longest of the others.
SHARED = 100
SHARED_REST = (1, 20, 40)


@pytest.fixture
def checkpoint(tmp_path, seed):
    return random_checkpoint(tmp_path / "checkpoint", seed)


def test_gates_of_the_random_checkpoint_are_mixed(checkpoint, monkeypatch):
    """The comparisons below mean nothing if all gates are closed, or all are fully open."""
    openings = []
    apply_gate = dense.apply_gate

    def listening(scores, gate, visible):
        weights = apply_gate(scores, gate, visible)
        openings.append((weights / gate.gamma[:, None, None])[visible.expand_as(weights)])
        return weights

    monkeypatch.setattr(dense, "apply_gate", listening)
    for prompt in random_prompts():
        reference_model(checkpoint)(torch.tensor([prompt["prompt_token_ids"]]))
    opening = torch.cat(openings)
    closed, full = (opening == 0).float().mean(), (opening > 1 - 1e-6).float().mean()
    print(f"gates: {closed:.2f} closed, {full:.2f} fully open")
    assert closed > 0.1 and full > 0.005 and closed + full < 0.9


@pytest.mark.parametrize(
    "path, block_size", [("loop", 32), ("padded", 128), ("bucketed", 16), ("gather", 16)]
)
def test_paged_steps_match_one_unpaged_forward(path, block_size, checkpoint, monkeypatch):
    monkeypatch.setenv("VLLM_HP1_TORCH_PATH", path)
    settings.cache_clear()
    prompts = random_prompts()
    for prompt in random_prompts(SHARED_REST):
        shared = prompts[-1]["prompt_token_ids"][:SHARED]
        prompts.append(TokensPrompt(prompt_token_ids=shared + prompt["prompt_token_ids"]))
    with engine(checkpoint, block_size=block_size) as llm:
        counters.reset()
        with recorded_steps() as steps:
            missed = generate(llm, prompts)
        served = counters.snapshot()
        hit = generate(llm, prompts)

    reference = reference_model(checkpoint)
    worst = difference(missed, reference), difference(hit, reference)
    print(f"{path}, blocks of {block_size}: max |dlogprob| {worst[0]:.1e}, cached {worst[1]:.1e}")
    assert max(worst) < TOLERANCE

    assert any(1 < query < keys for step in steps for query, keys in step), "no prompt was chunked"
    assert any(
        any(query == 1 < keys for query, keys in step) and any(query > 1 for query, _ in step)
        for step in steps
    ), "no step mixed a decode with a prefill"
    computed = sum(
        len(output.prompt_token_ids) - output.num_cached_tokens + STEPS - 1 for output in missed
    )
    assert {path: computed} == {name: hits.tokens for name, hits in served.items()}
    for output in hit:
        whole_blocks = (len(output.prompt_token_ids) - 1) // block_size * block_size
        assert output.num_cached_tokens == whole_blocks


def test_preempted_requests_resume_as_they_were(checkpoint):
    # Eight prompts of four blocks fill the cache (a block is vLLM's own); then each wants a fifth.
    prompts = random_prompts(range(53, 61))
    with engine(checkpoint, num_gpu_blocks_override=33, max_num_batched_tokens=512) as llm:
        outputs = generate(llm, prompts)
        metrics = {metric.name: metric for metric in llm.get_metrics()}
    preemptions = metrics["vllm:num_preemptions"].value
    worst = difference(outputs, reference_model(checkpoint))
    print(f"{preemptions} preemptions: max |dlogprob| {worst:.1e}")
    assert preemptions > 0
    assert worst < TOLERANCE


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_broken_attention_shows(mutation, checkpoint):
    prompts = random_prompts()
    with engine(checkpoint, block_size=BLOCK_SIZE) as llm:
        with pytest.MonkeyPatch.context() as monkeypatch:
            mutation(monkeypatch)
            outputs = generate(llm, prompts)
    worst = difference(outputs, reference_model(checkpoint))
    print(f"{mutation.__name__}: max |dlogprob| {worst:.1e}")
    assert worst > BROKEN
