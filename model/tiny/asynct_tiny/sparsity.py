"""How much of a model's attention and MLP is exactly zero, layer by layer."""

from typing import NamedTuple

import torch
from asynct_kernels.gate import apply_gate
from asynct_model import AsyncTForCausalLM
from torch import nn


class LayerSparsity(NamedTuple):
    """Shares, 0 to 1, of zeros: among gate outputs p at visible keys, and among relu(gate) * up."""

    attention: float
    mlp: float


@torch.inference_mode()
def sparsity(model: AsyncTForCausalLM, input_ids: torch.Tensor) -> list[LayerSparsity]:
    """Measures every layer on input_ids [B, T], rows without padding."""
    attention, mlp = [], []

    def measure_attention(module: nn.Module, inputs: tuple) -> None:
        hidden_states, rotary = inputs[:2]
        query, key, _ = module.project(hidden_states, rotary)
        length, group = query.shape[1], query.shape[2] // key.shape[2]
        keys = key.repeat_interleave(group, dim=2)
        gate = module.gate()
        scale = gate.score_scale(module.head_dim)
        scores = scale * torch.einsum("bihd,bjhd->bhij", query.float(), keys.float())
        visible = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
        p = apply_gate(scores, gate, visible)
        attention.append((p[..., visible] == 0).float().mean().item())

    def measure_mlp(module: nn.Module, inputs: tuple) -> None:
        mlp.append((module.inner(inputs[0]) == 0).float().mean().item())

    hooks = []
    for layer in model.model.layers:
        hooks.append(layer.self_attn.register_forward_pre_hook(measure_attention))
        hooks.append(layer.mlp.register_forward_pre_hook(measure_mlp))
    try:
        model(input_ids=input_ids, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return [LayerSparsity(*shares) for shares in zip(attention, mlp)]
