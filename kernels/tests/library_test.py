"""torch.library's own checks, torch.compile, and the import on a machine without a GPU."""

import os
import subprocess
import sys

import cases
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import asynct_kernels

devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
operations = pytest.mark.parametrize("operation", cases.OPERATIONS, ids=lambda o: o.name)


@devices
@operations
@pytest.mark.parametrize("layout", cases.LAYOUTS, ids=lambda f: f.__name__)
def test_opcheck(seed, operation, layout, device):
    args = cases.make_inputs(operation, 5, 16, torch.bfloat16, device, layout=layout)
    torch.library.opcheck(getattr(torch.ops.asynct, operation.name).default, args)


def layer(x, residual, qkv, gate_up, alpha, gamma):
    """Every operation once, as a model would call them."""
    y, residual = asynct_kernels.fused_add_uclip_norm(x, residual, alpha, gamma)
    q, k, _ = qkv.split([64, 32, 32], dim=-1)
    q, k = asynct_kernels.qk_uclip_norm(
        q.unflatten(-1, (4, 16)), k.unflatten(-1, (2, 16)), alpha, gamma, alpha, gamma)
    z, residual = asynct_kernels.post_attn_pre_mlp_uclip_out(
        asynct_kernels.uclip_norm(y, alpha, gamma), residual, alpha, gamma, alpha, gamma)
    return q, k, z, residual, asynct_kernels.relu_and_mul(gate_up)


@devices
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph_for_any_number_of_tokens(seed, device, backend):
    torch.compiler.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
    alpha, gamma = torch.randn(2, 16, device=device)
    for tokens in (3, 5, 8):
        args = [torch.randn(tokens, n, device=device).to(torch.bfloat16)
                for n in (16, 16, 128, 24)]
        for a, b in zip(compiled(*args, alpha, gamma), layer(*args, alpha, gamma), strict=True):
            assert torch.equal(a, b)
    assert counter.frame_count == 1


WITHOUT_GPU = """
import torch
import asynct_kernels
from asynct_kernels import _C

assert not torch.cuda.is_available()
x = torch.ones(2, 8)
assert torch.equal(asynct_kernels.uclip_norm(x, torch.ones(8), torch.ones(1)), x)
parameter = _C.Parameter(0, _C.DataType.float32, 0)
try:
    _C.uclip_norm(dtype=_C.DataType.float32, x=_C.RowsView(0, 8), y=0,
                  dyht=_C.DyHTParams(parameter, parameter, -1.0, 1.0), rows=2, channels=8, stream=0)
except RuntimeError as error:
    print(error)
"""


def test_imports_without_a_gpu_and_a_launch_says_why_it_fails():
    output = subprocess.run(
        [sys.executable, "-c", WITHOUT_GPU], check=True, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)},
    ).stdout
    assert output.startswith("uclip_norm: ") and "CUDA" in output
