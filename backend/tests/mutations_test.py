"""The comparison of the other tests turns red for each mistake that it is there to find."""

import dataclasses

import pytest
import torch
from comparison import check, every_path, random_gate
from synthetic_step import SyntheticStep

from asynct_kernels.reference import attention
from asynct_vllm.settings import Settings
from asynct_vllm.torch_paths import gather, loop, padded
from asynct_vllm.torch_paths.batch import causal_mask

BLOCK_SIZE = 16


def _too_early(positions, num_keys):
    return causal_mask(positions - 1, num_keys)


def _too_late(positions, num_keys):
    return causal_mask(positions + 1, num_keys)


def _without_sigma(query, key, value, gate, *, visible, dtype):
    gate = dataclasses.replace(gate, sigma=0.0)
    return attention(query, key, value, gate, visible=visible, dtype=dtype)


def _without_last_key(query, key, value, gate, *, visible, dtype):
    last = visible.any(-2).sum(-1) - 1
    lost = torch.arange(visible.shape[-1]) == last[..., None]
    visible = visible & ~lost[..., None, :]
    return attention(query, key, value, gate, visible=visible, dtype=dtype)


def _window_restarts_at_blocks(query, key, value, gate, *, visible, dtype):
    block_of_key = torch.arange(visible.shape[-1]) // BLOCK_SIZE
    return sum(
        attention(query, key, value, gate, visible=visible & (block_of_key == block), dtype=dtype)
        for block in range(int(block_of_key[-1]) + 1)
    )


MUTATIONS = {
    "position one too early": ("causal_mask", _too_early),
    "position one too late": ("causal_mask", _too_late),
    "sigma 0": ("attention", _without_sigma),
    "last key lost": ("attention", _without_last_key),
    "window restarted at a block edge": ("attention", _window_restarts_at_blocks),
}


@pytest.fixture
def step(seed) -> SyntheticStep:
    """Finite poison, so that it is the arithmetic that gives a mistake away."""
    query_lens, prefix_lens = (1, 17, 5, 40), (33, 15, 60, 0)
    return SyntheticStep.make(query_lens, prefix_lens, block_size=BLOCK_SIZE, poison=1.0)


@every_path
def test_green_without_mutation(path, step):
    check(step, random_gate(4), Settings(path))


@every_path
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_red_under(mutation, path, step, monkeypatch):
    name, mutant = MUTATIONS[mutation]
    for module in (loop, padded, gather):
        monkeypatch.setattr(module, name, mutant)
    with pytest.raises(AssertionError, match="error"):
        check(step, random_gate(4), Settings(path))
