"""Whether an engine's answers are right, judged by the unpaged Hugging Face model."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Iterator

import torch
from asynct_model import AsyncTForCausalLM
from torch import nn
from transformers import DynamicCache

# An engine may be so many times as far from the exact model as eager PyTorch of the same precision.
MAX_ERROR_RATIO = 2.0
# A model without its moving average must be so many times as far as that: else the weights hide
# what the attention does.
MIN_BROKEN_RATIO = 5.0

_CHUNK = 512  # queries at once: a layer's scores are [heads, _CHUNK, keys]


@dataclasses.dataclass(frozen=True)
class Answer:
    """A prompt, and for each token put out the log-probabilities of it (first) and of others."""

    prompt: list[int]
    steps: list[dict[int, float]]

    @property
    def tokens(self) -> list[int]:
        """The tokens that were put out."""
        return [next(iter(step)) for step in self.steps]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Root mean square differences of log-probability from the model in float32.

    Attributes:
        error: of the engine.
        eager: of eager PyTorch in the engine's precision.
        broken: of the float32 model with sigma 0.
    """

    error: float
    eager: float
    broken: float

    @property
    def fault(self) -> str | None:
        """What is wrong, None if the answers are right and a wrong attention would have shown."""
        allowed = MAX_ERROR_RATIO * self.eager
        if not self.error <= allowed:  # NaN is wrong
            return (f"log-probabilities are off by {self.error:.2g} (root mean square), and may be "
                    f"by {allowed:.2g}, {MAX_ERROR_RATIO:g} times what eager PyTorch is off")
        if not self.broken >= MIN_BROKEN_RATIO * allowed:
            return (f"the check is blind: with sigma 0 they would be off by {self.broken:.2g}, "
                    f"and {allowed:.2g} is allowed")
        return None


class Reference:
    """The Hugging Face model of a checkpoint, in float32 and as an engine rounds it."""

    def __init__(self, folder: pathlib.Path, dtype: torch.dtype, quantization: str | None):
        """Loads the checkpoint; `quantization` is None or "fp8", the engine's of the weights."""
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._exact = self._load(folder, torch.float32)
        self._eager = self._load(folder, dtype)
        if quantization == "fp8":
            _round_products_to_fp8(self._eager)

    def judge(self, answers: list[Answer]) -> Verdict:
        """Compares every log-probability of the answers."""
        served = torch.tensor([value for answer in answers
                               for step in answer.steps for value in step.values()])
        exact = self._expected(self._exact, answers)
        eager = self._expected(self._eager, answers)
        with _without_moving_average(self._exact):
            broken = self._expected(self._exact, answers)
        return Verdict(*(_root_mean_square(values - exact) for values in (served, eager, broken)))

    def _load(self, folder: pathlib.Path, dtype: torch.dtype) -> AsyncTForCausalLM:
        return AsyncTForCausalLM.from_pretrained(folder, dtype=dtype).eval().to(self._device)

    @torch.no_grad()
    def _expected(self, model: AsyncTForCausalLM, answers: list[Answer]) -> torch.Tensor:
        """What the model has in the place of each log-probability of the answers."""
        values = []
        for answer in answers:
            rows = self._log_probabilities(model, answer)
            for row, step in zip(rows, answer.steps, strict=True):
                values.append(row[torch.tensor(list(step), device=row.device)].cpu())
        return torch.cat(values)

    def _log_probabilities(self, model: AsyncTForCausalLM, answer: Answer) -> torch.Tensor:
        """[steps, vocabulary], reading the prompt and the engine's own tokens."""
        tokens = torch.tensor([answer.prompt + answer.tokens[:-1]], device=self._device)
        first = len(answer.prompt) - 1
        cache = DynamicCache(config=model.config)
        logits = []
        for start in range(0, tokens.shape[1], _CHUNK):
            chunk = tokens[:, start:start + _CHUNK]
            wanted = torch.arange(chunk.shape[1], device=self._device)[max(first - start, 0):]
            output = model(chunk, past_key_values=cache, use_cache=True, logits_to_keep=wanted)
            logits.append(output.logits[0])
        return torch.cat(logits).float().log_softmax(-1)


def _root_mean_square(differences: torch.Tensor) -> float:
    return math.sqrt(differences.double().square().mean().item())


@contextlib.contextmanager
def _without_moving_average(model: AsyncTForCausalLM) -> Iterator[None]:
    """Sets every sigma to 0 for as long as the context lasts."""
    sigmas = [layer.self_attn.sigma for layer in model.model.layers]
    saved = [sigma.detach().clone() for sigma in sigmas]
    with torch.no_grad():
        for sigma in sigmas:
            sigma.zero_()
        try:
            yield
        finally:
            for sigma, value in zip(sigmas, saved):
                sigma.copy_(value)


@torch.no_grad()
def _round_products_to_fp8(model: AsyncTForCausalLM) -> None:
    """As vLLM quantises online: a scale for each matrix, and one for each token of its input."""
    for linear in model.model.layers.modules():
        if isinstance(linear, nn.Linear):
            linear.weight.copy_(_to_fp8(linear.weight, linear.weight.abs().amax()))
            linear.register_forward_pre_hook(
                lambda _, inputs: (_to_fp8(inputs[0], inputs[0].abs().amax(-1, keepdim=True)),))


def _to_fp8(x: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """x as e4m3 has it when `largest` becomes the type's own largest number."""
    scale = (largest.float() / torch.finfo(torch.float8_e4m3fn).max).clamp(min=1e-12)
    return ((x.float() / scale).to(torch.float8_e4m3fn).float() * scale).to(x.dtype)
