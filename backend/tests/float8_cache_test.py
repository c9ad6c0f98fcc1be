"""A float8 cache: what PyTorch's paths and the kernels' calls make of its bytes and scales."""

import pytest
import torch
from comparison import assert_matches, every_path, random_gate
from synthetic_step import SyntheticStep

from asynct_vllm import builder
from asynct_vllm.plan import Plan
from asynct_vllm.settings import Settings

QUERY_LENS, PREFIX_LENS = (1, 17, 5, 40), (33, 15, 60, 0)

# V's saturates the largest of its values.
every_scale = pytest.mark.parametrize(
    "k_scale, v_scale",
    (
        (torch.tensor(0.7), torch.tensor(0.005)),
        (torch.tensor([0.3, 2.0]), torch.tensor([1.0, 0.004])),
    ),
    ids=("a tensor", "a head"),
)


@every_path
@every_scale
def test_paths_read_and_write_it(path, k_scale, v_scale, seed):
    step = SyntheticStep.make(QUERY_LENS, PREFIX_LENS).float8(k_scale, v_scale)
    gate = random_gate(4)
    assert_matches(step.run(gate, Settings(path)), step.reference(gate))


@every_scale
def test_kernels_are_given_it(k_scale, v_scale, seed, monkeypatch):
    monkeypatch.setattr(
        builder, "plan", lambda *_: Plan(None, "reference", "reference", "a test"))
    step = SyntheticStep.make(QUERY_LENS, PREFIX_LENS, dtype=torch.bfloat16)
    step, gate = step.float8(k_scale, v_scale), random_gate(4)
    exact = step.reference(gate)
    error = (step.run(gate, Settings()).double() - exact).abs().max()
    assert error <= 2**-7 * exact.abs().max()


def test_the_wrong_scale_shows(seed):
    step = SyntheticStep.make(QUERY_LENS, PREFIX_LENS).float8(torch.tensor(0.7), torch.tensor(0.5))
    gate = random_gate(4)
    exact = step.reference(gate)
    for scale in (step.layer._k_scale, step.layer._v_scale):
        right = scale.clone()
        scale.mul_(1.1)
        assert (step.run(gate, Settings()) - exact).abs().max() > 1e-3 * exact.abs().max()
        scale.copy_(right)
