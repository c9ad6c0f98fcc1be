"""vLLM, with our plugin where the checkpoint is AsyncT."""

from __future__ import annotations

import pathlib

import torch
from lm_eval.models.vllm_causallms import VLLM

from asynct_evals.engines import Generation

# Measured on two cores with the tiny checkpoint.
_CPU = {"enforce_eager": True, "max_num_seqs": 32, "max_num_batched_tokens": 4096}


class VLLMEngine(VLLM):
    """lm-eval's vLLM model that keeps the tokens of what it generates."""

    def __init__(self, model: pathlib.Path, *, dtype: str, max_length: int):
        self.generations: dict[tuple[int, ...], Generation] = {}
        super().__init__(
            pretrained=str(model),
            dtype=dtype,
            max_model_len=max_length,
            batch_size="auto",
            **({} if torch.cuda.is_available() else _CPU),
        )

    def _model_generate(self, requests, generate=False, sampling_params=None):
        if generate:
            for params in sampling_params:
                params.logprobs = 2
        outputs = super()._model_generate(requests, generate, sampling_params)
        if generate:
            for request in outputs:
                answer = request.outputs[0]
                self.generations[tuple(request.prompt_token_ids)] = Generation(
                    list(answer.token_ids),
                    [{t: p.logprob for t, p in step.items()} for step in answer.logprobs],
                )
        return outputs
