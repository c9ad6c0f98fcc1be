"""Writes a trained model as a checkpoint: matrices in bfloat16, the small vectors in float32."""

import copy
from pathlib import Path

import torch
from asynct_model import AsyncTForCausalLM

from asynct_tiny.tokenizer import build_tokenizer


def save(model: AsyncTForCausalLM, directory: Path) -> None:
    """Saves weights, configuration, generation defaults and tokenizer."""
    rounded = copy.deepcopy(model)
    for parameter in rounded.parameters():
        if parameter.ndim > 1:
            parameter.data = parameter.data.to(torch.bfloat16)
    rounded.config.dtype = torch.bfloat16
    rounded.save_pretrained(directory)
    build_tokenizer().save_pretrained(directory)
