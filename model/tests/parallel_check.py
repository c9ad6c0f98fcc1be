"""Engines of several ranks on the CPU against the unpaged model."""

from pathlib import Path

from random_checkpoint import random_checkpoint
from vllm_engine import (
    TOLERANCE,
    difference,
    engine,
    generate,
    random_prompts,
    reference_model,
)

PROMPT_LENGTHS = (1, 3, 33, 150)


def check(folder: Path, seed: int, settings: dict, **fields) -> None:
    """Serves a random checkpoint with the given engine settings and configuration fields, and then
    again from the prefix cache."""
    checkpoint = random_checkpoint(folder / "checkpoint", seed, **fields)
    with engine(checkpoint, **settings) as llm:
        prompts = random_prompts(PROMPT_LENGTHS)
        missed, hit = generate(llm, prompts), generate(llm, prompts)
    assert hit[-1].num_cached_tokens
    for cache, outputs in (("missed", missed), ("hit", hit)):
        worst = difference(outputs, reference_model(checkpoint))
        print(f"{settings}, {fields}, cache {cache}: max |dlogprob| {worst:.1e}")
        assert worst < TOLERANCE
