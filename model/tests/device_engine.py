"""Engines on the GPU where there is one, on the CPU elsewhere, and what right means on each."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch
from asynct_model import AsyncTForCausalLM
from asynct_vllm import counters
from random_checkpoint import random_config, random_tensors, save_checkpoint
from vllm import LLM, RequestOutput
from vllm_engine import (
    TOLERANCE,
    engine,
    expected,
    max_difference,
    reference_model,
    root_mean_square,
    served,
)

ON_GPU = torch.cuda.is_available()
TINY = Path("model/tiny/checkpoint").resolve()

# For the GPU: decodes are captured, and what stands between kernels is not compiled.
GRAPHS = (
    dict(
        enforce_eager=False,
        compilation_config=dict(
            mode=0, cudagraph_mode="FULL_DECODE_ONLY", cudagraph_capture_sizes=[4, 8, 16, 32, 64]),
    )
    if ON_GPU
    else {}
)

# Several engines at a time may share a GPU, so that none takes what memory it finds.
_GPU_SETTINGS = dict(
    dtype="bfloat16",
    max_model_len=1024,
    max_num_batched_tokens=512,
    gpu_memory_utilization=0.05,
    kv_cache_memory_bytes=1 << 28,
)


def device_tensors(seed: int, **fields) -> tuple:
    """(configuration, tensors) of a random checkpoint of a shape that the kernels serve."""
    if not ON_GPU:
        config = random_config(**fields)
        return config, random_tensors(config, seed)
    config = random_config(**{"head_dim": 128, "hidden_size": 256, **fields})
    tensors = random_tensors(config, seed)
    for name in tensors:
        if name.endswith("self_attn.alpha"):
            tensors[name] *= 2  # Scores are narrower by as much as the heads are wider.
    return config, tensors


def device_checkpoint(directory: Path, seed: int, **fields) -> Path:
    """Writes a checkpoint of `device_tensors` and returns its directory."""
    return save_checkpoint(directory, *device_tensors(seed, **fields))


@contextlib.contextmanager
def device_engine(checkpoint: Path, **settings) -> Iterator[LLM]:
    """As `vllm_engine.engine`; what serves the attention is counted from here on."""
    with engine(checkpoint, **{**(_GPU_SETTINGS if ON_GPU else {}), **settings}) as llm:
        counters.reset()  # vLLM warms up with requests of its own
        yield llm


def device_model(checkpoint: Path, dtype: torch.dtype) -> AsyncTForCausalLM:
    """The unpaged model, where the engines run."""
    return reference_model(checkpoint, dtype).to("cuda" if ON_GPU else "cpu")


def assert_right(outputs: list[RequestOutput], checkpoint: Path, feature: str) -> None:
    """The log-probabilities are the unpaged model's: to float32's rounding on the CPU, and on the
    GPU twice as near to the float32 model's as the unpaged bfloat16 model's at the worst. There,
    nothing but CUDA kernels may have served the attention.
    """
    if not ON_GPU:
        answers = served(outputs)
        exact = _allowed(expected(outputs, reference_model(checkpoint)), answers)
        error = max_difference(_allowed(answers, answers), exact)
        print(f"{feature}: max |dlogprob| {error:.1e}")
        # The trained checkpoint's logits are larger than the random ones'.
        assert error < (5 if checkpoint == TINY else 1) * TOLERANCE
        return
    error, plain = errors(outputs, checkpoint)
    kernels = counters.snapshot()
    print(f"{feature}: dlogprob {error:.1e}, of plain bfloat16 {plain:.1e}; by {kernels}")
    assert error <= 2 * plain
    assert kernels and all(name.startswith("hp1_") for name in kernels)


def errors(outputs: list[RequestOutput], checkpoint: Path) -> tuple[float, float]:
    """How far vLLM's log-probabilities are from those of the float32 model, and how far the unpaged
    bfloat16 model's are, which rounds as often: root mean squares."""
    answers = served(outputs)
    exact, plain = (
        _allowed(expected(outputs, device_model(checkpoint, dtype)), answers)
        for dtype in (torch.float32, torch.bfloat16))
    ours = _allowed(answers, answers)
    return root_mean_square(ours, exact), root_mean_square(plain, exact)


def _allowed(logprobs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """What no grammar forbade in `answers`; where one did, the probabilities of the rest sum to 1,
    provided that it left fewer than TOP_K tokens."""
    forbidden = answers.isinf()
    kept = logprobs.masked_fill(forbidden, -torch.inf)
    bound = forbidden.any(-1, keepdim=True)
    return torch.where(bound, kept.log_softmax(-1), kept)[~forbidden]
