"""Random steps and gates, and the comparison that the tests of the paths make."""

import dataclasses
import random
from typing import get_args

import pytest
import torch
from synthetic_step import SyntheticStep

from asynct_kernels import GateParams
from asynct_vllm.settings import Settings, TorchPath

# Lengths around block edges, and some that are not.
EDGES = (1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 128, 129)
TOLERANCE = 3e-6  # of the largest output: float32 sums of up to some 200 terms

every_path = pytest.mark.parametrize("path", get_args(TorchPath))


def random_gate(heads: int, **changes) -> GateParams:
    """A gate that is neither all open nor all closed on standard normal tokens."""
    gate = GateParams(
        sigma=0.25 + torch.rand(heads), alpha=8 + 16 * torch.rand(heads), gamma=torch.randn(heads)
    )
    return dataclasses.replace(gate, **changes)


def random_step(rng: random.Random, requests: int = 8, **options) -> SyntheticStep:
    """Decodes, fresh prompts, chunks of prompts and prefix hits in one batch."""
    seq_lens = [rng.choice(EDGES) for _ in range(requests)]
    query_lens = [rng.choice((1, seq_len, rng.randint(1, seq_len))) for seq_len in seq_lens]
    prefix_lens = [seq_len - query_len for seq_len, query_len in zip(seq_lens, query_lens)]
    return SyntheticStep.make(query_lens, prefix_lens, **options)


def assert_matches(output: torch.Tensor, reference: torch.Tensor) -> None:
    """float32 output against a reference of float64, to rounding."""
    error = (output - reference).abs().max()
    assert error <= TOLERANCE * reference.abs().max(), f"error {error}"


def check(step: SyntheticStep, gate: GateParams, settings: Settings) -> None:
    """The step's output against unpaged float64 attention."""
    assert_matches(step.run(gate, settings), step.reference(gate))
