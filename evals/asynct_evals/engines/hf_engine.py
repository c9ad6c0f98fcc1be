"""Hugging Face transformers."""

from __future__ import annotations

import pathlib
from typing import Any

import asynct_model  # noqa: F401  registers AsyncT with transformers
import torch
from lm_eval.models.huggingface import HFLM

from asynct_evals.engines import Generation

# Measured on two cores with the tiny checkpoint: attention in eager mode holds T x T scores.
_CPU_BATCH = 4
_CUDA_BATCH = 16


class HFEngine(HFLM):
    """lm-eval's Hugging Face model that keeps the tokens of what it generates."""

    def __init__(self, model: pathlib.Path, *, dtype: str, max_length: int, **options: Any):
        self.generations: dict[tuple[int, ...], Generation] = {}
        cuda = torch.cuda.is_available()
        super().__init__(
            pretrained=str(model),
            dtype=dtype,
            max_length=max_length,
            batch_size=_CUDA_BATCH if cuda else _CPU_BATCH,
            device="cuda" if cuda else "cpu",
            **options,
        )

    def _model_generate(self, context, max_length, stop, *, attention_mask, **kwargs):
        output = super()._model_generate(
            context, max_length, stop, attention_mask=attention_mask, **kwargs
        )
        for row, mask, tokens in zip(context, attention_mask, output, strict=True):
            answer = tokens[context.shape[1] :].tolist()
            prompt = tuple(row[mask.bool()].tolist())
            self.generations[prompt] = Generation(self._until_stop(answer, stop))
        return output

    def _until_stop(self, tokens: list[int], stop: list[str]) -> list[int]:
        """Cuts what a row of a batch goes on with, after its end, until all rows have ended."""
        if self.eot_token_id in tokens:
            tokens = tokens[: tokens.index(self.eot_token_id) + 1]
        if any(s in self.tokenizer.decode(tokens) for s in stop):
            for end in range(1, len(tokens) + 1):
                text = self.tokenizer.decode(tokens[:end])
                if any(s in text for s in stop):
                    return tokens[:end]
        return tokens
