"""Every bad argument of the operations is refused, by name, before anything runs."""

import math

import cases
import pytest
import torch

T, N = 4, 16


def replaced(name, **changes):
    """Good arguments of the operation `name`, by parameter, with changes."""
    x, parameter = torch.ones(T, N), torch.ones(N)
    clip = dict(clip_min=-1.0, clip_max=1.0)
    good = {
        "uclip_norm": dict(x=x, alpha=parameter, gamma=parameter) | clip,
        "fused_add_uclip_norm": dict(x=x, residual=x, alpha=parameter, gamma=parameter) | clip,
        "hp1_qk_uclip_norm": dict(
            q=torch.ones(T, 4, N), k=torch.ones(T, 2, N), q_alpha=parameter, q_gamma=parameter,
            k_alpha=parameter, k_gamma=parameter) | clip,
        "hp1_post_attn_pre_mlp_uclip_out": dict(
            x=x, residual=x, post_alpha=parameter, post_gamma=parameter, mlp_alpha=parameter,
            mlp_gamma=parameter) | clip,
        "relu_and_mul": dict(gate_up=x),
    }
    return list((good[name] | changes).values())


def every(changes, error, message, *names):
    """The case for each of the operations `names`."""
    return [(name, changes, error, message) for name in names]


NORMS = ("uclip_norm", "fused_add_uclip_norm")
RESIDUALS = ("fused_add_uclip_norm", "hp1_post_attn_pre_mlp_uclip_out")
CLIPPED = (*NORMS, "hp1_qk_uclip_norm", "hp1_post_attn_pre_mlp_uclip_out")
QK = ("hp1_qk_uclip_norm",)
POST = ("hp1_post_attn_pre_mlp_uclip_out",)
RELU = ("relu_and_mul",)
MATRIX = (*NORMS, *POST)
UNEVEN = torch.ones(3, 3, N)[:, :2]

BAD = [
    *every(dict(clip_min=1.0, clip_max=-1.0), ValueError,
           "clip_min is 1.0 and clip_max is -1.0: clip_min <= clip_max must hold", *CLIPPED),
    *every(dict(clip_max=math.nan), ValueError, "clip_max is nan", *CLIPPED),
    *every(dict(clip_min="low"), TypeError, "clip_min is 'low'", *CLIPPED),
    *every(dict(x=None), TypeError, "x is a NoneType: must be a torch.Tensor", *MATRIX),
    *every(dict(x=torch.ones(T, N, dtype=torch.float64)), TypeError,
           "x has dtype torch.float64: must be one of torch.float32, torch.float16, "
           "torch.bfloat16", *MATRIX),
    *every(dict(x=torch.ones(N, T).T), ValueError, r"x has strides \[1, 4\]: the last must be 1",
           *MATRIX),
    *every(dict(x=torch.ones(())), ValueError, r"x has shape \[\]", *MATRIX),
    *every(dict(x=UNEVEN), ValueError, r"x has shape \[3, 2, 16\] and strides \[48, 16, 1\]: its "
           "rows must be evenly spaced", *MATRIX),
    *every(dict(residual=torch.ones(T, N + 1)), ValueError,
           r"residual has shape \[4, 17\]: must be \[4, 16\]", *RESIDUALS),
    *every(dict(residual=torch.ones(T, N, dtype=torch.float16)), TypeError,
           "residual has dtype torch.float16 and x has dtype torch.float32", *RESIDUALS),
    *every(dict(residual=torch.ones(N, T).T), ValueError, "residual has strides", *RESIDUALS),
    *every(dict(residual=torch.ones(T, N, device="meta")), ValueError,
           "residual is on meta and x on cpu: must be the same", *RESIDUALS),
    *every(dict(alpha=1.0), TypeError, "alpha is a float", *NORMS),
    *every(dict(alpha=torch.ones(N - 1)), ValueError,
           r"alpha has shape \[15\]: must be \[16\] or \[1\]", *NORMS),
    *every(dict(gamma=torch.ones(1, N)), ValueError, r"gamma has shape \[1, 16\]", *NORMS),
    *every(dict(gamma=torch.ones(N, dtype=torch.bfloat16)), TypeError,
           "gamma has dtype torch.bfloat16: must be one of torch.float32", *NORMS),
    *every(dict(gamma=torch.ones(2 * N)[::2]), ValueError,
           r"gamma has strides \[2\]: must be contiguous", *NORMS),
    *every(dict(gamma=torch.ones(N, device="meta")), ValueError, "gamma is on meta and x on cpu",
           *NORMS),
    *[("hp1_post_attn_pre_mlp_uclip_out", {name: torch.ones(3)}, ValueError,
       rf"{name} has shape \[3\]")
      for name in ("post_alpha", "post_gamma", "mlp_alpha", "mlp_gamma")],
    *[("hp1_qk_uclip_norm", {name: torch.ones(3)}, ValueError, rf"{name} has shape \[3\]")
      for name in ("q_alpha", "q_gamma", "k_alpha", "k_gamma")],
    *every(dict(q=torch.ones(T, 3, N)), ValueError,
           "query has 3 heads and key has 2: the query's must be a multiple of the key's", *QK),
    *every(dict(q=torch.ones(T, 4 * N)), ValueError,
           r"q has shape \[4, 64\]: must be \[T, heads, D\]", *QK),
    *every(dict(k=torch.ones(T, 2, N + 1)), ValueError,
           r"k has shape \[4, 2, 17\]: must be \[4, 2, 16\]", *QK),
    *every(dict(k=torch.ones(T, 2, N, dtype=torch.bfloat16)), TypeError,
           "k has dtype torch.bfloat16", *QK),
    *every(dict(k=torch.ones(T, N, 2).transpose(1, 2)), ValueError, "k has strides", *QK),
    *every(dict(gate_up=torch.ones(T, 5)), ValueError,
           r"gate_up has shape \[4, 5\]: its last size must be even", *RELU),
    *every(dict(gate_up=torch.ones(T, 6, dtype=torch.int8)), TypeError,
           "gate_up has dtype torch.int8", *RELU),
    *every(dict(gate_up=torch.ones(6, T).T), ValueError, "gate_up has strides", *RELU),
    *every(dict(gate_up=[1.0]), TypeError, "gate_up is a list", *RELU),
]


@pytest.mark.parametrize("name, changes, error, message", BAD)
def test_bad_arguments_are_named(name, changes, error, message):
    operation = next(o for o in cases.OPERATIONS if o.name == name)
    operation.run(*replaced(name))
    with pytest.raises(error, match=message):
        operation.run(*replaced(name, **changes))


@pytest.mark.gpu
@pytest.mark.parametrize("name, changes, error, message",
                         [bad for bad in BAD if "meta" not in bad[3] and "meta" not in str(bad[1])])
def test_bad_arguments_are_named_on_cuda(name, changes, error, message):
    operation = next(o for o in cases.OPERATIONS if o.name == name)
    arguments = cases.converted(
        replaced(name, **changes),
        lambda t: torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="cuda").copy_(t))
    with pytest.raises(error, match=message):
        operation.run(*arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("operation", cases.OPERATIONS, ids=lambda o: o.name)
def test_mixed_devices_are_named(operation):
    arguments = replaced(operation.name)
    for i, argument in enumerate(arguments):
        if isinstance(argument, torch.Tensor) and i > 0:
            mixed = cases.converted(arguments, lambda t: t.cuda())
            mixed[i] = argument
            with pytest.raises(ValueError, match="is on cpu and . on cuda:0: must be the same"):
                operation.run(*mixed)
