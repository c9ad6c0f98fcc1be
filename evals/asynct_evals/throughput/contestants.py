"""The two sides: their checkpoints, and their engines in processes of their own."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Any

import torch
from asynct_model import AsyncTConfig
from machine import describe_run
from scenarios import Scenario
from timed_engine import Engine, random_prompts

from asynct_evals.data import InputError
from asynct_evals.throughput import breakdown, weights
from asynct_evals.throughput.reference import Answer
from asynct_evals.throughput.settings import Settings

# What a check looks at: so many tokens of two requests, or of more where the outputs are shorter;
# and the likeliest in the place of each.
_CHECKED_TOKENS = 8
_LOGPROBS = 20
# Tokens that are profiled, around the middle of the outputs.
_PROFILED_TOKENS = 16
_ZEROS_SEED = 1  # of the prompt on which zeros are counted, beside the run's own seed


@dataclasses.dataclass(frozen=True)
class Contestants:
    """Checkpoints of both, the share of zeros of ours, and what they run on."""

    ours: pathlib.Path
    theirs: pathlib.Path
    attention_zeros: float
    machine: dict[str, Any]


def prepare(settings: Settings, folder: pathlib.Path, commit: str) -> Contestants:
    """Makes the checkpoints that are not given, in `folder`, and counts the zeros of ours.

    Raises:
      InputError: the given checkpoint is none of AsyncT, or FlashAttention-3 does not run on the
        GPU.
    """
    if settings.gpu:
        from vllm.vllm_flash_attn.flash_attn_interface import fa_version_unsupported_reason

        if reason := fa_version_unsupported_reason(3):
            raise InputError(f"FlashAttention-3, which AsyncT is compared with: {reason}")
    dtype = getattr(torch, settings.dtype)
    if settings.checkpoint is None:
        config, ours = settings.shape, folder / "ours"
        weights.save_asynct(
            config, ours, zeros=settings.attention_zeros, dtype=dtype, seed=settings.seed
        )
    else:
        config, ours = _read_config(settings.checkpoint), settings.checkpoint
    theirs = folder / "theirs"
    weights.save_rival(config, theirs, dtype=dtype, seed=settings.seed)
    zeros = weights.attention_zeros(ours, settings.seed + _ZEROS_SEED)
    return Contestants(ours, theirs, zeros, describe_run(commit))


def _read_config(checkpoint: pathlib.Path) -> AsyncTConfig:
    try:
        return AsyncTConfig.from_pretrained(checkpoint)
    except (OSError, TypeError, ValueError) as error:
        raise InputError(f"--checkpoint {checkpoint}: {error}") from error


class Contestant(Engine):
    """One side's engine."""

    def answer(self, scenario: Scenario, seed: int) -> list[Answer]:
        """What the first, the last and some other requests of a shorter run answered."""
        shorter = scenario.middle(_CHECKED_TOKENS)
        steps = self.answers(shorter, seed, _LOGPROBS)
        prompts = random_prompts(shorter, self.vocabulary, seed)
        parts = max(math.ceil(_CHECKED_TOKENS / min(shorter.outputs)) - 1, 1)
        chosen = {part * (len(prompts) - 1) // parts for part in range(parts + 1)}
        return [Answer(prompts[index], steps[index]) for index in sorted(chosen)]

    def explain(self, scenario: Scenario, seed: int) -> dict[str, dict]:
        """`breakdown.phases` of a profiled run of the scenario's middle."""
        return breakdown.phases(self.profile(scenario.middle(_PROFILED_TOKENS), seed), self.layers)
