"""What only a GPU can show: the kernels that ran, streams, graphs, repeatability, 64-bit offsets."""

import cases
import pytest
import torch

import asynct_kernels

pytestmark = pytest.mark.gpu

operations = pytest.mark.parametrize("operation", cases.OPERATIONS, ids=lambda o: o.name)


def kernels_of(function) -> list[str]:
    """Names of the kernels, copies and fills that function() runs on the GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    # What the profiler itself adds has no signature or "(Device)" in its name.
    return [event.name for event in profile.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and "(" in event.name]


@operations
def test_one_kernel_and_the_right_one(seed, operation):
    widths = {torch.float32: 4, torch.float16: 8, torch.bfloat16: 8}
    for dtype, width in widths.items():
        for layout, expected in ((cases.contiguous, width), (cases.unaligned, 1)):
            args = cases.make_inputs(operation, 3, 64, dtype, "cuda", layout=layout)
            operation.run(*args)
            names = kernels_of(lambda: operation.run(*args))
            assert len(names) == 1, names
            assert operation.kernel in names[0] and f", {expected}>" in names[0]


@operations
def test_nothing_is_launched_for_no_tokens(operation):
    args = cases.make_inputs(operation, 0, 64, torch.bfloat16, "cuda")
    assert kernels_of(lambda: operation.run(*args)) == []


@operations
def test_same_bits_in_every_run(seed, operation):
    args = cases.make_inputs(operation, 700, 2048, torch.bfloat16, "cuda")
    first = operation.run(*args)
    for _ in range(200):
        for a, b in zip(operation.run(*args), first):
            assert torch.equal(a, b)


@operations
def test_rows_do_not_depend_on_their_batch(seed, operation):
    """The grid depends on the number of tokens; the bits of a token must not."""
    args = cases.make_inputs(operation, 5000, 128, torch.bfloat16, "cuda")
    whole = operation.run(*args)
    for tokens in (1, 33, 4999):
        part = operation.run(*[a[:tokens] if isinstance(a, torch.Tensor) and a.shape[0] == 5000
                               else a for a in args])
        for a, b in zip(part, whole):
            assert torch.equal(a, b[:tokens])


@operations
def test_graph_replays_on_new_inputs(seed, operation):
    args = cases.make_inputs(operation, 33, 256, torch.bfloat16, "cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        operation.run(*args)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = operation.run(*args)
    for _ in range(3):
        for output in outputs:
            output.fill_(float("nan"))
        fresh = cases.make_inputs(operation, 33, 256, torch.bfloat16, "cuda")
        for a, b in zip(args, fresh):
            if isinstance(a, torch.Tensor):
                a.copy_(b)
        graph.replay()
        for a, b in zip(outputs, operation.run(*fresh)):
            assert torch.equal(a, b)


@operations
def test_runs_on_the_current_stream(seed, operation):
    args = cases.make_inputs(operation, 33, 256, torch.bfloat16, "cuda")
    expected = operation.run(*args)
    late = cases.converted(args, torch.zeros_like)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)  # cycles: on another stream the kernel would see the zeros
        for a, b in zip(late, args):
            if isinstance(a, torch.Tensor):
                a.copy_(b)
        outputs = operation.run(*late)
        torch.cuda.current_stream().synchronize()
    for a, b in zip(outputs, expected):
        assert torch.equal(a, b)


def test_offsets_past_32_bits(seed):
    """Input and output that are longer than 2^32 bytes and 2^31 elements."""
    n = 2048
    rows = 2**31 // n + 8
    alpha, gamma = torch.randn(2, n, device="cuda")
    row = torch.randn(1, n, device="cuda").to(torch.bfloat16)
    expected = asynct_kernels.uclip_norm(row, alpha, gamma)
    x = row.repeat(rows, 1)
    assert (asynct_kernels.uclip_norm(x, alpha, gamma) == expected).all()
    far = torch.as_strided(x, (2, n), (2**31, 1))
    assert (asynct_kernels.uclip_norm(far, alpha, gamma) == expected).all()
