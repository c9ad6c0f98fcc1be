"""The optimisation: one step updates the model from one or more batches of rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from asynct_model import AsyncTForCausalLM
from torch import nn
from torch.nn import functional as F

from asynct_tiny.corpus import IGNORED, Rows


@dataclass(frozen=True)
class Optimisation:
    """What AdamW is run with. The per-channel and per-head vectors need a far higher rate."""

    matrix_rate: float = 2e-3
    vector_rate: float = 2e-2
    weight_decay: float = 0.1  # of the matrices only
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    warmup_steps: int = 100
    final_rate: float = 0.02  # of the full rate


def rate_factor(progress: float, step: int, settings: Optimisation) -> float:
    """Learning rate as a share of the full one: a linear warm-up, a cosine over `progress` 0..1."""
    warmup = min(1.0, (step + 1) / settings.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return warmup * (settings.final_rate + (1 - settings.final_rate) * cosine)


class Trainer:
    """Steps a model in place; bfloat16 matrix products on a GPU, float32 parameters and scores."""

    def __init__(self, model: AsyncTForCausalLM, settings: Optimisation):
        self.model = model.train()
        self.settings = settings
        self.device = model.device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            [
                dict(
                    params=[p for p in self.parameters if p.ndim > 1],
                    full_rate=settings.matrix_rate,
                    weight_decay=settings.weight_decay,
                ),
                dict(
                    params=[p for p in self.parameters if p.ndim == 1],
                    full_rate=settings.vector_rate,
                    weight_decay=0.0,
                ),
            ],
            lr=0.0,
            betas=settings.betas,
            fused=self.device.type == "cuda",
        )
        self.steps = 0
        self.skipped = 0

    def step(self, batches: Mapping[str, Rows], progress: float) -> dict[str, float]:
        """One update from the sum of the batches' mean losses, which it returns by kind of row.

        A step whose gradient is not finite changes nothing and is counted in `skipped`.
        """
        losses = {}
        for kind, rows in batches.items():
            loss = self.loss(rows)
            loss.backward()
            losses[kind] = loss.detach()
        norm = nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        factor = rate_factor(progress, self.steps, self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = group["full_rate"] * factor
        if math.isfinite(norm.item()):
            self.optimizer.step()
        else:
            self.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return {kind: loss.item() for kind, loss in losses.items()}

    def loss(self, rows: Rows) -> torch.Tensor:
        """Mean cross-entropy over the rows' labels."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.model(input_ids=rows.inputs, use_cache=False).logits
        return F.cross_entropy(
            logits.flatten(0, 1).float(), rows.labels.flatten(), ignore_index=IGNORED
        )
