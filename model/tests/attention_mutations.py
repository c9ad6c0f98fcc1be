"""Ways to break the serving attention, to see the comparisons with the reference model turn red.

Each takes pytest's `monkeypatch` and breaks the code that all of the backend's PyTorch paths share.
The reference model shares some of it: run it after `monkeypatch` is undone.
"""

import dataclasses
from collections.abc import Callable

import pytest
import torch
from asynct_kernels import GateParams
from asynct_kernels.reference import dense
from asynct_vllm.torch_paths.batch import Batch

BLOCK_SIZE = 16

Gate = Callable[[torch.Tensor, GateParams, torch.Tensor], torch.Tensor]


def wrong_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query stands one position too early."""
    build = Batch.build

    def early(*args, **kwargs) -> Batch:
        batch = build(*args, **kwargs)
        return dataclasses.replace(batch, positions=batch.positions - 1)

    monkeypatch.setattr(Batch, "build", early)


def no_sigma(monkeypatch: pytest.MonkeyPatch) -> None:
    """The high-pass average is not subtracted."""
    _replace_gate(
        monkeypatch,
        lambda apply_gate, scores, gate, visible: apply_gate(
            scores, dataclasses.replace(gate, sigma=0.0), visible
        ),
    )


def last_key_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """No query sees the last key of its sequence."""

    def lost(apply_gate: Gate, scores, gate, visible):
        read = visible.any(dim=-2, keepdim=True)
        next_read = torch.nn.functional.pad(read[..., 1:], (0, 1))
        return apply_gate(scores, gate, visible & next_read)

    _replace_gate(monkeypatch, lost)


def window_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window does not reach back into the block before."""

    def restarted(apply_gate: Gate, scores, gate, visible):
        visible = visible.expand_as(scores)
        blocks = zip(scores.split(BLOCK_SIZE, -1), visible.split(BLOCK_SIZE, -1))
        return torch.cat([apply_gate(block, gate, seen) for block, seen in blocks], -1)

    _replace_gate(monkeypatch, restarted)


MUTATIONS = (wrong_position, no_sigma, last_key_lost, window_restarts)


def _replace_gate(monkeypatch: pytest.MonkeyPatch, mutated: Callable) -> None:
    apply_gate = dense.apply_gate
    monkeypatch.setattr(dense, "apply_gate", lambda *args: mutated(apply_gate, *args))
