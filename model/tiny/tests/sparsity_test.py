"""The sparsity report against a count of zeros made another way."""

import pytest
import torch
from asynct_kernels import GateParams
from asynct_kernels.gate import apply_gate
from asynct_model import AsyncTForCausalLM
from asynct_model.modeling import rotary_factors
from asynct_tiny.sizes import tiny_config
from asynct_tiny.sparsity import sparsity

NAMES = ("sigma", "alpha", "gamma")


def _model() -> AsyncTForCausalLM:
    config = tiny_config(hidden_size=64, num_hidden_layers=2, head_dim=16, intermediate_size=96)
    return AsyncTForCausalLM(config).eval()


def test_open_and_closed_gates_are_counted(seed):
    """A gate that is always open has no zeros; one that is always closed has nothing else."""
    model = _model()
    first, second = (layer.self_attn for layer in model.model.layers)
    with torch.no_grad():
        first.gate_settings = first.gate_settings | {"clip": (0.5, 1.0)}
        second.gamma.zero_()
    measured = sparsity(model, torch.randint(256, (2, 30)))
    assert [layer.attention for layer in measured] == [0.0, 1.0]


def test_attention_share_is_that_of_visible_keys(seed):
    """Query by query, over the keys up to it."""
    model, length = _model(), 25
    tokens = torch.randint(256, (1, length))
    layer = model.model.layers[0]
    rotary = rotary_factors(torch.arange(length)[None], model.config)
    with torch.inference_mode():
        hidden_states = layer.input_layernorm(model.model.embed_tokens(tokens))
        query, key, _ = layer.self_attn.project(hidden_states, rotary)
        zeros = 0
        for i in range(length):
            for head in range(4):
                scores = key[0, : i + 1, head // 2] @ query[0, i, head] / model.config.head_dim
                seen = torch.ones(1, 1, i + 1, dtype=torch.bool)
                gate = GateParams(*(getattr(layer.self_attn, n)[head : head + 1] for n in NAMES))
                zeros += (apply_gate(scores[None, None], gate, seen) == 0).sum().item()
    share = zeros / (4 * length * (length + 1) / 2)
    assert sparsity(model, tokens)[0].attention == pytest.approx(share, abs=2e-3)


def test_mlp_share_is_that_of_its_closed_units(seed):
    model = _model()
    mlp = model.model.layers[0].mlp
    with torch.no_grad():
        mlp.gate_proj.weight[:24].zero_()  # a quarter of the units: relu(0) * up
    tokens = torch.randint(256, (2, 40))
    inputs = []
    handle = mlp.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    measured = sparsity(model, tokens)[0].mlp
    handle.remove()
    with torch.inference_mode():
        closed = (mlp.gate_proj(inputs[0]) <= 0) | (mlp.up_proj(inputs[0]) == 0)
    assert abs(measured - closed.float().mean().item()) < 1e-6
    assert measured > 0.25


def test_measuring_leaves_the_model_as_it_was(seed):
    model = _model()
    tokens = torch.randint(256, (1, 20))
    before = model(tokens).logits
    sparsity(model, tokens)
    assert torch.equal(model(tokens).logits, before)
    assert not any(layer.mlp._forward_pre_hooks for layer in model.model.layers)
