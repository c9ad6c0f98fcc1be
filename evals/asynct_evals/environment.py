"""Process-wide settings of the libraries, to be made before any of them is imported."""

from __future__ import annotations

import os

_QUIET = {
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
_OFFLINE = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
_CPU = {
    # A compiled sampler is all that eager vLLM would compile: its compiler probe costs 10 s.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB; unset, vLLM takes a share of the machine's memory
    # A second process for the engine only competes for the cores.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
}


def prepare(*, offline: bool, verbose: bool) -> None:
    """Sets defaults for this process and its children; what the user has set stays."""
    import torch

    defaults = {"VLLM_NO_USAGE_STATS": "1"}
    if not verbose:
        defaults |= _QUIET
    if offline:
        defaults |= _OFFLINE
    if not torch.cuda.is_available():
        defaults |= _CPU
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
