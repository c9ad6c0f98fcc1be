"""DyHT's formula against numpy in float64, its rounding and its gradients."""

import math

import numpy as np
import pytest
import torch

from asynct_kernels import dyht


def specified(x, alpha, gamma, clip_min, clip_max):
    x, alpha, gamma = (t.double().numpy() for t in (x, alpha, gamma))
    return torch.from_numpy(gamma * np.minimum(np.maximum(alpha * x, clip_min), clip_max))


@pytest.mark.parametrize("clip", [(-1.0, 1.0), (0.25, 0.5), (-2.0, 0.0), (-math.inf, 0.5)])
@pytest.mark.parametrize("alpha_size, gamma_size", [(7, 7), (7, 1), (1, 7), (1, 1)])
def test_follows_the_specification(seed, alpha_size, gamma_size, clip):
    x = torch.randn(3, 5, 7, dtype=torch.float64) * 2
    alpha = torch.randn(alpha_size, dtype=torch.float64)
    gamma = torch.randn(gamma_size, dtype=torch.float64)
    torch.testing.assert_close(dyht(x, alpha, gamma, *clip),
                               specified(x, alpha, gamma, *clip), rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("parameter_dtype", [torch.float32, torch.bfloat16])
def test_rounds_once(seed, dtype, parameter_dtype):
    x = torch.randn(64, 32).to(dtype)
    alpha, gamma = torch.randn(2, 32).to(parameter_dtype)
    y = dyht(x, alpha, gamma)
    assert y.dtype == dtype
    exact = specified(x, alpha, gamma, -1.0, 1.0)
    # Half a unit in the last place for the rounding, and float32's three before it.
    bound = 0.5 * torch.finfo(dtype).eps + 2 * torch.finfo(torch.float32).eps
    tiny = torch.finfo(dtype).smallest_normal
    assert ((y.double() - exact).abs() <= bound * exact.abs() + tiny).all()


def test_nan_stays_and_infinity_clamps():
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.5])
    y = dyht(x, torch.ones(1), torch.full((1,), 2.0))
    torch.testing.assert_close(y, torch.tensor([math.nan, 2.0, -2.0, 1.0]), equal_nan=True)


@pytest.mark.parametrize("size", [3, 1])
def test_gradients(seed, size):
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    alpha, gamma = (torch.randn(size, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(dyht, (x, alpha, gamma))


@pytest.mark.parametrize("changes, error, message", [
    (dict(x=torch.ones(4, dtype=torch.int8)), TypeError, "x has dtype torch.int8"),
    (dict(alpha=1.0), TypeError, "alpha is a float"),
    (dict(gamma=torch.ones(3)), ValueError, r"gamma has shape \[3\]: must be \[4\] or \[1\]"),
    (dict(clip_min=1.0, clip_max=-1.0), ValueError, "clip_min is 1.0 and clip_max is -1.0"),
    (dict(clip_min=None), TypeError, "clip_min is None"),
])
def test_bad_arguments_are_named(changes, error, message):
    arguments = dict(x=torch.ones(2, 4), alpha=torch.ones(4), gamma=torch.ones(4))
    with pytest.raises(error, match=message):
        dyht(**arguments | changes)
