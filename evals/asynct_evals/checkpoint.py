"""What a run asks of a checkpoint before it loads it."""

from __future__ import annotations

import hashlib
import pathlib

import asynct_model  # noqa: F401  registers AsyncT with transformers
import torch
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from asynct_evals.data import InputError


def describe(model: pathlib.Path) -> tuple[PretrainedConfig, PreTrainedTokenizerBase]:
    """The configuration and the tokenizer of a checkpoint directory.

    Raises:
      InputError: one of them cannot be read.
    """
    try:
        return AutoConfig.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"--model {model}: {error}") from error


def resolve_dtype(dtype: str, config: PretrainedConfig) -> str:
    """`dtype`; for "auto" the checkpoint's own on a GPU and float32 on the CPU."""
    if dtype != "auto":
        return dtype
    own = str(config.dtype or torch.float32).removeprefix("torch.")
    return own if torch.cuda.is_available() else "float32"


def fingerprint(model: pathlib.Path, *others: object) -> str:
    """Of the directory's files (names, sizes, times of change) and of `others`: 16 hex digits."""
    digest = hashlib.sha256(repr(others).encode())
    for path in sorted(model.rglob("*")):
        if path.is_file():
            status = path.stat()
            name = path.relative_to(model)
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
