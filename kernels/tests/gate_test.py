"""GateParams' validation, and the gate on scores that hold anything where nothing is visible."""

import dataclasses
import math

import pytest
import torch

from asynct_kernels import GateParams, apply_gate

ONE = dict(sigma=1.0, alpha=1.0, gamma=1.0)


@pytest.mark.parametrize("changes, error, message", [
    (dict(window=-3), ValueError, "window is -3: must be at least 1"),
    (dict(window=0), ValueError, "window is 0"),
    (dict(window=3.0), TypeError, r"window is 3.0 \(float\): must be an int"),
    (dict(window=True), TypeError, "window is True"),
    (dict(clip=(1.0, 0.0)), ValueError, r"clip\[0\] is 1.0 and clip\[1\] is 0.0"),
    (dict(clip=(0.0, math.nan)), ValueError, r"clip\[1\] is nan"),
    (dict(clip=(0.0,)), ValueError, "clip is"),
    (dict(clip=("0", 1.0)), TypeError, r"clip\[0\] is '0'"),
    (dict(weights=[1.0, 2.0]), ValueError, "weights has 2 values: must have window = 3"),
    (dict(weights=[1.0, None, 2.0]), TypeError, r"weights\[1\] is None"),
    (dict(relu_pre=1), TypeError, "relu_pre is 1"),
    (dict(scale=math.inf), ValueError, "scale is inf"),
    (dict(scale="1"), TypeError, "scale is '1'"),
    (dict(sigma=math.nan), ValueError, "sigma is nan"),
    (dict(alpha="1"), TypeError, "alpha is '1'"),
    (dict(gamma=torch.ones(2, 2)), ValueError, r"gamma has shape \[2, 2\]: must be \[heads\]"),
    (dict(gamma=torch.ones(2, dtype=torch.int64)), TypeError, "gamma has dtype torch.int64"),
])
def test_bad_parameters_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        GateParams(**ONE | changes)


def test_is_frozen_and_hashable():
    gate = GateParams(torch.ones(2), torch.nn.Parameter(torch.ones(2)), 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        gate.window = 2
    assert hash(gate) == hash(gate)


def test_taps():
    assert GateParams(**ONE).taps == (1 / 3,) * 3
    assert GateParams(**ONE, window=2, weights=(2, -1)).taps == (2.0, -1.0)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_invisible_scores_may_hold_anything(seed, poison):
    scores = torch.randn(2, 3, 4, 6, dtype=torch.float64)
    visible = torch.rand(2, 1, 4, 6) < 0.5
    gate = GateParams(*torch.randn(3, 3), clip=(0.5, 1.0))
    expected = apply_gate(torch.where(visible, scores, 0.0), gate, visible)
    scores = torch.where(visible, scores, poison).requires_grad_()
    weights = apply_gate(scores, gate, visible)
    assert torch.equal(weights, expected)
    assert not weights.masked_select(~visible).any()
    weights.sum().backward()
    assert scores.grad.isfinite().all() and not scores.grad.masked_select(~visible).any()


def test_visible_nan_shows(seed):
    scores = torch.randn(1, 1, 4)
    scores[..., 1] = math.nan
    gate = GateParams(1.0, 1.0, 1.0, window=2)
    weights = apply_gate(scores, gate, torch.ones(1, 4, dtype=torch.bool))
    assert weights.isnan().tolist() == [[[False, True, True, False]]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_keeps_shape_and_dtype(dtype):
    weights = apply_gate(torch.ones(5, 2, 3, 7, dtype=dtype), GateParams(**ONE),
                         torch.ones((), dtype=torch.bool))
    assert weights.dtype == dtype and weights.shape == (5, 2, 3, 7)


@pytest.mark.parametrize("scores, visible, error, message", [
    (torch.ones(2, 2, dtype=torch.int32), torch.ones(2, 2), TypeError, "scores has dtype"),
    (torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bool), ValueError, "scores has shape"),
    (torch.ones(1, 2, 2), torch.ones(2, 2), TypeError, "visible has dtype torch.float32"),
    (torch.ones(1, 2, 2), None, TypeError, "visible is a NoneType"),
])
def test_bad_arguments_are_named(scores, visible, error, message):
    with pytest.raises(error, match=message):
        apply_gate(scores, GateParams(**ONE), visible)
