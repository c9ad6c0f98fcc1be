"""Process-wide settings of the libraries, to be made before any of them is imported."""

from __future__ import annotations

import ctypes
import os

_ALWAYS = {
    # Threads that spin while they wait starve each other as soon as anything else runs: beside
    # other load, two cores took seven times as long.
    "OMP_WAIT_POLICY": "passive",
    "VLLM_NO_USAGE_STATS": "1",
}
_QUIET = {
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
_OFFLINE = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
_CPU = {
    # A compiled sampler is all that eager vLLM would compile: its compiler probe costs 10 s.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB
    # A second process for the engine only competes for the cores.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def prepare(*, offline: bool, verbose: bool) -> None:
    """Sets defaults for this process and its children; what the user has set stays."""
    _set(_ALWAYS)
    if not verbose:
        _set(_QUIET)
    if offline:
        _set(_OFFLINE)

    import torch  # OpenMP reads its settings here

    if not torch.cuda.is_available():
        _set(_CPU)


def _set(defaults: dict[str, str]) -> None:
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def keep_freed_memory() -> None:
    """Has malloc keep what tensors free, for this process.

    By default glibc gives blocks of megabytes back to the kernel, which zeroes them anew for the
    next layer's temporaries: up to a third of an evaluation's CPU time.
    """
    libc = ctypes.CDLL(None)
    for threshold in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of glibc's malloc.h
        libc.mallopt(threshold, 2**31 - 1)  # bytes, the largest int
