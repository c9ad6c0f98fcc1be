"""Tensor- and pipeline-parallel engines of two processes, which find AsyncT by themselves."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import cpu_slot_mapping
import plain_generate
import pytest
import torch
from random_checkpoint import random_checkpoint
from vllm_engine import (
    BROKEN,
    TOLERANCE,
    difference,
    engine,
    engine_settings,
    generate,
    random_prompts,
    reference_model,
    sampling_params,
)

PROMPT_LENGTHS = (1, 3, 33, 150)


def test_spawned_tensor_parallel_engine_finds_the_plugin(tmp_path, seed):
    checkpoint = random_checkpoint(tmp_path / "checkpoint", seed, tie_word_embeddings=False)
    settings = engine_settings(checkpoint, tensor_parallel_size=2)
    request, result = tmp_path / "request", tmp_path / "outputs"
    request.write_bytes(pickle.dumps((settings, random_prompts(PROMPT_LENGTHS), sampling_params())))
    subprocess.run(
        [sys.executable, plain_generate.__file__, request, result],
        check=True,
        env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )
    outputs = pickle.loads(result.read_bytes())
    reference = reference_model(checkpoint)
    worst = difference(outputs, reference)
    print(f"tensor parallel: max |dlogprob| {worst:.1e}")
    assert worst < TOLERANCE
    # A rank that took the other's heads would show.
    for layer in reference.model.layers:
        for parameter in (layer.self_attn.sigma, layer.self_attn.alpha, layer.self_attn.gamma):
            parameter.data = torch.cat(parameter.data.chunk(2)[::-1])
    assert difference(outputs, reference) > BROKEN


def test_replicated_kv_heads_match(tmp_path, seed):
    _check(tmp_path, seed, dict(tensor_parallel_size=2), num_key_value_heads=1)


def test_pipeline_with_tied_embeddings_matches(tmp_path, seed):
    _check(tmp_path, seed, dict(pipeline_parallel_size=2), tie_word_embeddings=True)


@pytest.mark.parametrize("block_size,interleave", ((16, 1), (64, 16)))
def test_shared_keys_match(block_size, interleave, tmp_path, seed):
    """Decode context parallelism of two ranks; prompts come in chunks, and again from the cache."""
    slots = cpu_slot_mapping.SlotMapping
    _check(tmp_path, seed, dict(
        tensor_parallel_size=2, decode_context_parallel_size=2, block_size=block_size,
        cp_kv_cache_interleave_size=interleave,
        worker_extension_cls=f"{slots.__module__}.{slots.__qualname__}"), num_key_value_heads=1)


def _check(tmp_path: Path, seed: int, settings: dict, **fields) -> None:
    checkpoint = random_checkpoint(tmp_path / "checkpoint", seed, **fields)
    with engine(checkpoint, **settings) as llm:
        prompts = random_prompts(PROMPT_LENGTHS)
        missed, hit = generate(llm, prompts), generate(llm, prompts)
    assert hit[-1].num_cached_tokens
    for cache, outputs in (("missed", missed), ("hit", hit)):
        worst = difference(outputs, reference_model(checkpoint))
        print(f"{settings}, {fields}, cache {cache}: max |dlogprob| {worst:.1e}")
        assert worst < TOLERANCE
