"""The dense reference of AsyncI attention against the specification, written out in loops."""

import math

import numpy as np
import pytest
import torch

from asynct_kernels import GateParams
from asynct_kernels.reference import attention


def specified(query, key, value, gate, visible):
    """AsyncI attention of one request in numpy float64, one key at a time."""
    query, key, value = (t.double().numpy() for t in (query, key, value))
    (num_queries, num_heads, head_size), num_keys = query.shape, key.shape[0]
    group = num_heads // key.shape[1]
    scale = 1.0 / head_size if gate.scale is None else gate.scale
    weights = gate.weights or [1.0 / gate.window] * gate.window
    sigma, alpha, gamma = (np.broadcast_to(np.asarray(p, dtype=np.float64), num_heads)
                           for p in (gate.sigma, gate.alpha, gate.gamma))
    output = np.zeros(query.shape)
    for i in range(num_queries):
        for h in range(num_heads):
            rectified = []
            for j in range(num_keys):
                if not visible[i, j]:
                    rectified.append(0.0)
                    continue
                score = scale * float(query[i, h] @ key[j, h // group])
                rectified.append(max(score, 0.0) if gate.relu_pre else score)
                average = sum(weights[m] * rectified[j - m]
                              for m in range(gate.window) if j - m >= 0)
                z = alpha[h] * (score - sigma[h] * average)
                p = gamma[h] * min(max(z, gate.clip[0]), gate.clip[1])
                output[i, h] += p * value[j, h // group]
    return torch.from_numpy(output)


def causal(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril(num_keys - num_queries)


def inputs(num_queries=5, num_keys=9, heads=4, kv_heads=2, head_size=8, dtype=torch.float64):
    """Random query, key, value whose scores are of order 1 with the default scale."""
    query = torch.randn(num_queries, heads, head_size, dtype=dtype) * math.sqrt(head_size)
    key = torch.randn(num_keys, kv_heads, head_size, dtype=dtype)
    value = torch.randn(num_keys, kv_heads, head_size, dtype=dtype)
    return query, key, value


def signed(heads, dtype=torch.float64):
    """Per-head sigma, alpha, gamma of either sign."""
    return tuple(torch.randn(3, heads, dtype=dtype) * 1.5)


@pytest.mark.parametrize("relu_pre", [True, False])
@pytest.mark.parametrize("window", range(1, 9))
def test_follows_the_specification(seed, window, relu_pre):
    query, key, value = inputs()
    gate = GateParams(*signed(4), window=window, relu_pre=relu_pre)
    expected = specified(query, key, value, gate, causal(5, 9))
    torch.testing.assert_close(attention(query, key, value, gate), expected)


@pytest.mark.parametrize("clip", [(-1.0, 1.0), (0.25, 2.0), (-2.0, -0.5), (0.3, 0.3),
                                  (-math.inf, math.inf)])
def test_general_clip_keeps_unseen_keys_out(seed, clip):
    query, key, value = inputs()
    gate = GateParams(*signed(4), clip=clip)
    expected = specified(query, key, value, gate, causal(5, 9))
    torch.testing.assert_close(attention(query, key, value, gate), expected)


@pytest.mark.parametrize("num_queries, num_keys", [(1, 1), (2, 2), (3, 3), (1, 2), (1, 7), (7, 7)])
def test_window_edges_with_own_weights(seed, num_queries, num_keys):
    query, key, value = inputs(num_queries, num_keys)
    gate = GateParams(*signed(4), scale=-0.3, window=4, weights=[0.7, -0.2, 0.4, 1.5])
    expected = specified(query, key, value, gate, causal(num_queries, num_keys))
    torch.testing.assert_close(attention(query, key, value, gate), expected)


@pytest.mark.parametrize("group", range(1, 9))
def test_grouped_heads_and_scalars(seed, group):
    query, key, value = inputs(heads=2 * group, kv_heads=2)
    gate = GateParams(0.8, 1.3, -0.6)
    expected = specified(query, key, value, gate, causal(5, 9))
    torch.testing.assert_close(attention(query, key, value, gate), expected)


def test_any_mask_and_batch_dimensions(seed):
    gate = GateParams(*signed(4))
    batch = [inputs() for _ in range(6)]
    visible = torch.rand(6, 5, 9) < 0.6
    expected = torch.stack([specified(*one, gate, mask) for one, mask in zip(batch, visible)])
    query, key, value = (torch.stack(t).unflatten(0, (2, 3)) for t in zip(*batch))
    output = attention(query, key, value, gate, visible=visible.unflatten(0, (2, 3)))
    torch.testing.assert_close(output.flatten(0, 1), expected)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_unseen_rows_never_leak(seed, poison):
    query, key, value = inputs()
    gate = GateParams(*signed(4), clip=(0.5, 1.0))
    visible = causal(5, 9)
    visible[:, [0, 3, 4]] = False
    clean = [t.clone().requires_grad_() for t in (query, key, value)]
    key[[0, 3, 4]] = poison
    value[[0, 3, 4]] = poison
    poisoned = [t.clone().requires_grad_() for t in (query, key, value)]
    outputs = [attention(*t, gate, visible=visible) for t in (clean, poisoned)]
    assert torch.equal(*outputs)
    for output in outputs:
        output.sin().sum().backward()
    for a, b in zip(clean, poisoned):
        assert torch.equal(a.grad, b.grad)


def test_query_that_sees_nothing_gets_zeros(seed):
    query, key, value = inputs()
    visible = causal(5, 9)
    visible[2] = False
    output = attention(query, key, value, GateParams(*signed(4), clip=(0.5, 1.0)), visible=visible)
    assert torch.equal(output[2], torch.zeros_like(output[2]))
    assert output[3].abs().max() > 0


def test_prefix_equals_the_tail_of_the_whole(seed):
    query, key, value = inputs(9, 9)
    gate = GateParams(*signed(4))
    whole = attention(query, key, value, gate)
    torch.testing.assert_close(attention(query[6:], key, value, gate), whole[6:])
    torch.testing.assert_close(attention(query[:4], key[:4], value[:4], gate), whole[:4])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_computes_in_the_dtype_asked_for(seed, dtype):
    query, key, value = inputs(dtype=torch.bfloat16)
    gate = GateParams(*signed(4, torch.float32))
    output = attention(query, key, value, gate, dtype=dtype)
    assert output.dtype == dtype
    expected = specified(query, key, value, gate, causal(5, 9)).to(dtype)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_queries, num_keys", [(0, 0), (0, 3)])
def test_no_queries(num_queries, num_keys):
    query, key, value = inputs(num_queries, num_keys)
    assert attention(query, key, value, GateParams(1.0, 1.0, 1.0)).shape == (0, 4, 8)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_gradients(seed, window):
    # A clip that no z reaches, and one that many do; gradcheck perturbs by 1e-6, so that a score
    # close to a kink is improbable.
    tensors = [t.requires_grad_() for t in (*inputs(3, 4, head_size=2), *signed(4))]
    for clip in ((-100.0, 100.0), (0.0, 1.0)):
        def run(query, key, value, sigma, alpha, gamma):
            gate = GateParams(sigma, alpha, gamma, window=window, clip=clip)
            return attention(query, key, value, gate)
        assert torch.autograd.gradcheck(run, tensors)


def replaced(**changes):
    query, key, value = inputs()
    return {"query": query, "key": key, "value": value,
            "gate": GateParams(1.0, 1.0, 1.0)} | changes


@pytest.mark.parametrize("changes, error, message", [
    (dict(query=[1.0]), TypeError, "query is a list"),
    (dict(key=torch.zeros(9, 2, 8, dtype=torch.int32)), TypeError, "key has dtype torch.int32"),
    (dict(query=torch.zeros(5, 8)), ValueError, r"query has shape \[5, 8\]"),
    (dict(key=torch.zeros(9, 2, 4)), ValueError, r"key has shape \[9, 2, 4\]: must be \[9, 2, 8\]"),
    (dict(value=torch.zeros(8, 2, 8)), ValueError, r"value has shape \[8, 2, 8\]"),
    (dict(query=torch.zeros(5, 3, 8)), ValueError, "query has 3 heads and key has 2"),
    (dict(query=torch.zeros(10, 4, 8)), ValueError, "key has 9 rows"),
    (dict(gate=GateParams(torch.ones(3), 1.0, 1.0)), ValueError, r"sigma has shape \[3\]"),
    (dict(visible=torch.ones(5, 9)), TypeError, "visible has dtype torch.float32"),
    (dict(visible=torch.ones(9, 5, dtype=torch.bool)), ValueError, r"visible has shape \[9, 5\]"),
])
def test_bad_arguments_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        attention(**replaced(**changes))
