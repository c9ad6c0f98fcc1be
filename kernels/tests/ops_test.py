"""The operations on the CPU and on CUDA: values, layouts, special values, every element written."""

import itertools
import math

import cases
import pytest
import torch

from asynct_kernels import reference

SHAPES = [(0, 64), (1, 8), (5, 64), (33, 200), (7, 2048), (2, 6152), (3, 1), (4, 7), (9, 513)]

devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
operations = pytest.mark.parametrize("operation", cases.OPERATIONS, ids=lambda o: o.name)
dtypes = pytest.mark.parametrize("dtype", cases.DTYPES)


@pytest.fixture(autouse=True)
def poisoned_outputs():
    """Makes torch.empty and its like return NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def check(operation, args):
    """Checks the operation on `args`; on CUDA it must give the very bits of the CPU's reference."""
    outputs = operation.run(*args)
    cases.assert_accurate(operation, args, outputs)
    if args[0].is_cuda:
        expected = operation.run(*cases.converted(args, lambda t: t.cpu()))
        for output, bits in zip(outputs, expected):
            assert cases.same_bits(output.cpu(), bits)


@devices
@operations
@dtypes
@pytest.mark.parametrize("layout", cases.LAYOUTS, ids=lambda f: f.__name__)
def test_values(seed, operation, dtype, device, layout):
    for (tokens, n), parameter_dtype, sizes in itertools.product(
            SHAPES, dict.fromkeys((torch.float32, dtype)), ("n", "1", "n1", "1n")):
        check(operation, cases.make_inputs(
            operation, tokens, n, dtype, device, layout=layout, parameter_dtype=parameter_dtype,
            parameter_sizes=sizes))


@devices
@operations
@dtypes
def test_unaligned_parameters(seed, operation, dtype, device):
    for parameter_dtype in dict.fromkeys((torch.float32, dtype)):
        check(operation, cases.make_inputs(
            operation, 5, 64, dtype, device, parameter_dtype=parameter_dtype,
            unaligned_parameters=True))


@devices
@pytest.mark.parametrize("operation", [o for o in cases.OPERATIONS if o.has_clip],
                         ids=lambda o: o.name)
@pytest.mark.parametrize("clip", cases.CLIPS)
def test_clip(seed, operation, clip, device):
    for n in (64, 7):
        check(operation, cases.make_inputs(operation, 5, n, torch.bfloat16, device, clip=clip))


@devices
@operations
@dtypes
def test_special_values(seed, operation, dtype, device):
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-30, 1e30])
    for n in (64, 7):
        args = cases.make_inputs(operation, 9, n, dtype, device)
        activations = len(args) - operation.parameters - 2 * operation.has_clip
        for x in args[:activations]:
            chosen = torch.rand(x.shape, device=device) < 0.3
            values = special[torch.randint(len(special), x.shape)].to(device, dtype)
            x.copy_(torch.where(chosen, values, x))
            x[(0,) * x.dim()] = math.nan
        exact = operation.formula(*cases.converted(args, lambda t: t.double().cpu()))
        assert exact[0].isnan().any() and not exact[0].isnan().all()
        cpu = operation.run(*cases.converted(args, lambda t: t.cpu()))
        for output, truth, bits in zip(operation.run(*args), exact, cpu):
            # inf - inf and 0 * inf must be NaN, NaN must stay, and nothing else may become one;
            # but 1e30 is infinite in float16.
            if dtype != torch.float16:
                assert torch.equal(output.isnan().cpu(), truth.isnan())
            assert cases.same_bits(output.cpu(), bits)


@devices
def test_leading_dimensions(seed, device):
    x = torch.randn(3, 4, 5, 16, device=device)
    alpha, gamma = torch.randn(2, 16, device=device)
    expected = reference.uclip_norm(x.cpu(), alpha.cpu(), gamma.cpu())
    by_rows = torch.empty(60, 48, device=device)[:, 16:32].view(3, 4, 5, 16).copy_(x)
    for view in (x, by_rows, x[:, :, :1], x[1:2, :, 2:3], x[0, 0, 0]):
        output = torch.ops.asynct.uclip_norm(view, alpha, gamma, -1.0, 1.0)
        assert torch.equal(output.cpu(), reference.uclip_norm(view.cpu(), alpha.cpu(), gamma.cpu()))
        assert output.is_contiguous()
    assert torch.equal(torch.ops.asynct.uclip_norm(by_rows, alpha, gamma, -1.0, 1.0).cpu(), expected)


@devices
@dtypes
def test_fused_qkv_is_read_in_place(seed, device, dtype):
    heads, kv_heads, head_size, tokens = 16, 8, 128, 37
    operation = next(o for o in cases.OPERATIONS if o.name == "hp1_qk_uclip_norm")
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * head_size, device=device).to(dtype)
    q, k, v = qkv.split([heads * head_size, kv_heads * head_size, kv_heads * head_size], dim=-1)
    v.fill_(math.nan)
    q, k = q.view(tokens, heads, head_size), k.view(tokens, kv_heads, head_size)
    parameters = [torch.randn(n, device=device) for n in (head_size, 1, head_size, 1)]
    check(operation, [q, k, *parameters, -1.0, 1.0])
    # Heads outermost: neither the tokens nor the heads lie where a matrix would have them.
    check(operation, [q.transpose(0, 1).contiguous().transpose(0, 1), k, *parameters, -1.0, 1.0])


@devices
def test_zero_strides(seed, device):
    row = torch.randn(1, 64, device=device).to(torch.bfloat16)
    alpha, gamma = torch.randn(2, 64, device=device)
    output = torch.ops.asynct.uclip_norm(row.expand(50, 64), alpha, gamma, -1.0, 1.0)
    expected = torch.ops.asynct.uclip_norm(row, alpha, gamma, -1.0, 1.0)
    assert torch.equal(output, expected.expand(50, 64))


@devices
@operations
def test_inputs_are_not_written(seed, operation, device):
    args = cases.make_inputs(operation, 9, 64, torch.bfloat16, device)
    before = cases.converted(args, torch.clone)
    operation.run(*args)
    for a, b in zip(args, before):
        assert not isinstance(a, torch.Tensor) or torch.equal(a, b)
