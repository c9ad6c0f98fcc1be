"""The rungs: what each is set to, and the engines that serve them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from typing import Any, get_args

import torch
from asynct_model import AsyncTForCausalLM
from asynct_vllm.settings import TorchPath
from scenarios import Scenario
from timed_engine import Engine, random_prompts

_EAGER = {"enforce_eager": True}
_HF_BATCH = 16


@dataclasses.dataclass(frozen=True)
class Rung:
    """One way to serve.

    environment: the variables that choose it in vLLM; None: Hugging Face.
    options: of vllm.LLM.
    part: of the workload's requests, so many are timed; None: all.
    """

    environment: dict[str, str] | None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    part: int | None = None


# From the slowest. All but the last are timed on a part, and share the card's memory with it.
CPU_RUNGS = {
    "Hugging Face": Rung(None, part=16),
    **{name: Rung({"VLLM_HP1_TORCH_PATH": name}, _EAGER, part=16) for name in get_args(TorchPath)},
}
RUNGS = CPU_RUNGS | {
    "Triton": Rung({"VLLM_HP1_USE_CUDA": "0"}, _EAGER, part=128),
    "CUDA": Rung({}, _EAGER, part=128),
    "CUDA with graphs": Rung({}),
}


class VllmRung(Engine):
    """vLLM as the environment sets it; the first engine of its process."""

    def __init__(self, environment: dict[str, str], checkpoint: pathlib.Path,
                 traces: pathlib.Path, **options: Any):
        os.environ.update(environment)
        super().__init__(checkpoint, traces, **options)


class HuggingFaceRung:
    """The Hugging Face model in eager mode, padded batches of _HF_BATCH."""

    def __init__(self, checkpoint: pathlib.Path, dtype: str):
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = AsyncTForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype))
        self._model.eval().to(self._device)

    @torch.no_grad()
    def run(self, scenario: Scenario, seed: int) -> float:
        """Seconds that the scenario takes, as of `timed_engine.Engine`."""
        prompts = random_prompts(scenario, self._model.config.vocab_size, seed)
        started = time.perf_counter()
        for first in range(0, len(prompts), _HF_BATCH):
            chosen = slice(first, first + _HF_BATCH)
            self._generate(prompts[chosen], max(scenario.outputs[chosen]))
        return time.perf_counter() - started

    def _generate(self, prompts: list[list[int]], tokens: int) -> None:
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        inputs = torch.tensor([[0] * pad + prompt for pad, prompt in zip(padding, prompts)])
        mask = torch.arange(longest) >= torch.tensor(padding)[:, None]
        self._model.generate(
            inputs.to(self._device), attention_mask=mask.long().to(self._device), do_sample=False,
            max_new_tokens=tokens, min_new_tokens=tokens, pad_token_id=0,
        ).cpu()
