"""The sparsity report against a count of zeros made another way."""

import torch
from asynct_model import AsyncTForCausalLM
from asynct_tiny.sizes import tiny_config
from asynct_tiny.sparsity import sparsity


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


def test_only_visible_keys_are_counted(seed):
    """Of one token's single visible key, p is zero or not: shares are multiples of one head."""
    measured = sparsity(_model(), torch.randint(256, (1, 1)))
    assert all((4 * layer.attention) % 1 == 0 for layer in measured)


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
