"""Where vLLM keeps weights and caches, and how long they get: sleep, offloading, 128K tokens."""

import pytest
import torch
from asynct_kernels.reference import attention
from asynct_model import modeling
from device_engine import GRAPHS, assert_right, device_checkpoint, device_engine, device_tensors
from random_checkpoint import save_checkpoint
from vllm_engine import STEPS, generate, random_prompts, served

pytestmark = pytest.mark.gpu

PROMPT_LENGTHS = (1, 3, 33, 150, 300)
CACHE_BYTES = 1 << 30
CONTEXT = 131072
CHUNK = 128  # queries of a float32 reference whose scores would not fit in memory otherwise
@pytest.fixture
def checkpoint(tmp_path, seed):
    return device_checkpoint(tmp_path / "checkpoint", seed)


def test_sleep_and_wake(checkpoint):
    """Asleep it frees the cache; awake, captured graphs and all, it answers in the same bits."""
    prompts = random_prompts(PROMPT_LENGTHS)
    with device_engine(
        checkpoint, enable_sleep_mode=True, kv_cache_memory_bytes=CACHE_BYTES, **GRAPHS
    ) as llm:
        before = generate(llm, prompts)
        for level in (1, 2):  # the second forgets the weights as well
            free = torch.cuda.mem_get_info()[0]
            llm.sleep(level=level)
            freed = torch.cuda.mem_get_info()[0] - free
            print(f"sleep of level {level} freed {freed >> 20} MiB")
            assert freed > 0.9 * CACHE_BYTES
            llm.wake_up(tags=["weights"])
            if level == 2:
                llm.collective_rpc("reload_weights")
            llm.wake_up(tags=["kv_cache"])
            after = generate(llm, prompts)
            assert not any(output.num_cached_tokens for output in after)
            assert torch.equal(served(before), served(after))
    assert_right(after, checkpoint, "after sleep")


def test_weights_offloaded_to_the_cpu(checkpoint, monkeypatch):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")  # the other offloads none, and is silent
    size = 1 << 20
    with device_engine(checkpoint, cpu_offload_gb=size / (1 << 30)) as llm:
        offloaded = llm.apply_model(lambda model: sum(
            p.numel() * p.element_size() for p in model.parameters()
            if getattr(p, "_vllm_is_uva_offloaded", False)))[0]
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    print(f"{offloaded} bytes of weights on the CPU")
    assert offloaded >= size
    assert_right(outputs, checkpoint, "weights offloaded")


def test_cache_offloaded_to_the_cpu(checkpoint):
    """What the GPU's cache has lost is copied back."""
    prompts = random_prompts((150, 300))
    with device_engine(checkpoint, kv_offloading_size=0.25) as llm:
        generate(llm, prompts)
        generate(llm, random_prompts((3,)))  # until here blocks are on their way to the CPU
        assert llm.reset_prefix_cache()
        outputs = generate(llm, prompts)
    copied = [output.num_cached_tokens for output in outputs]
    print(f"{copied} tokens copied back")
    assert all(tokens >= 128 for tokens in copied)
    assert_right(outputs, checkpoint, "cache offloaded")


def test_a_context_of_128k(tmp_path, seed, monkeypatch):
    config, tensors = device_tensors(seed, max_position_embeddings=CONTEXT, num_hidden_layers=2)
    for name in tensors:
        if name.endswith("post_attn_layernorm.alpha"):
            tensors[name] /= 16  # sums of so many values would be cut off otherwise
    checkpoint = save_checkpoint(tmp_path / "checkpoint", config, tensors)
    with device_engine(
        checkpoint, max_model_len=CONTEXT, max_num_seqs=2, max_num_batched_tokens=8192,
        kv_cache_memory_bytes=CACHE_BYTES,
    ) as llm:
        outputs = generate(llm, random_prompts((CONTEXT - STEPS, 17)))

    def in_chunks(query, key, value, gate, *, visible, dtype):
        assert visible is None
        stops = range(CHUNK, query.shape[1] + CHUNK, CHUNK)
        return torch.cat([
            attention(query[:, stop - CHUNK : stop], key[:, :stop], value[:, :stop], gate,
                      dtype=dtype) for stop in stops], 1)

    monkeypatch.setattr(modeling, "attention", in_chunks)
    assert_right(outputs, checkpoint, f"{CONTEXT} tokens")
