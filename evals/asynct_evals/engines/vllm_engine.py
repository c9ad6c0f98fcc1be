"""vLLM, with our plugin where the checkpoint is AsyncT."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import torch
from lm_eval.models.vllm_causallms import VLLM

from asynct_evals.engines import Generation

# On two cores more sequences at once gain nothing with the tiny checkpoint: 8 to 64 take the same
# time, and the first answers come later.
_CPU = {"enforce_eager": True, "max_num_seqs": 16, "max_num_batched_tokens": 2048}


# Where bars are off vLLM must not be asked for one: it divides by the time that its bar has taken.
# lm-eval asks for it unless batches have a size; this one is never reached.
_ALL = 2**31


class VLLMEngine(VLLM):
    """lm-eval's vLLM model that keeps the tokens of what it generates."""

    def __init__(self, model: pathlib.Path, *, dtype: str, max_length: int, **options: Any):
        self.generations: dict[tuple[int, ...], Generation] = {}
        super().__init__(
            pretrained=str(model),
            dtype=dtype,
            max_model_len=max_length,
            batch_size=_ALL if os.environ.get("TQDM_DISABLE") == "1" else "auto",
            use_tqdm_on_load=False,
            **(({} if torch.cuda.is_available() else _CPU) | options),
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
