"""Tensor- and pipeline-parallel engines of two processes, which find AsyncT by themselves."""

import os
import pickle
import subprocess
import sys

import plain_generate
import torch
from parallel_check import PROMPT_LENGTHS, check
from random_checkpoint import random_checkpoint
from vllm_engine import (
    BROKEN,
    TOLERANCE,
    difference,
    engine_settings,
    random_prompts,
    reference_model,
    sampling_params,
)


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
    check(tmp_path, seed, dict(tensor_parallel_size=2), num_key_value_heads=1)


def test_pipeline_with_tied_embeddings_matches(tmp_path, seed):
    check(tmp_path, seed, dict(pipeline_parallel_size=2), tie_word_embeddings=True)
