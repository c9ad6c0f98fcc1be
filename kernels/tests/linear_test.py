"""Projections with what follows them: values, what is refused, and on a GPU both of their ways."""

import contextlib
import math
from unittest import mock

import cases
import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import asynct_kernels
from asynct_kernels import cuda, gemm, reference

ADD, RELU = "linear_add_uclip", "linear_relu_and_mul"
DTYPES = [torch.float16, torch.bfloat16]
CLIP = (-1.0, 1.0)
CPU = ("cpu", None)
ONE_KERNEL, TWO_KERNELS = ("cuda", True), ("cuda", False)
# Rows, columns and depth: around a tile of 128 x 128 x 64, and the smallest.
EDGES = [(1, 16, 8), (3, 48, 24), (127, 144, 72), (128, 128, 64), (129, 112, 56), (257, 400, 200)]
# Columns and depth: attention's output projection, and gate and up, of Qwen3 0.6B, 1.7B and 4B.
MODELS = {ADD: [(1024, 2048), (2048, 2048), (2560, 4096)],
          RELU: [(6144, 1024), (12288, 2048), (19456, 2560)]}

operations = pytest.mark.parametrize("operation", [ADD, RELU])
dtypes = pytest.mark.parametrize("dtype", DTYPES)
ways = pytest.mark.parametrize("way", [
    pytest.param(CPU, id="cpu"),
    pytest.param(ONE_KERNEL, id="one_kernel", marks=pytest.mark.gpu),
    pytest.param(TWO_KERNELS, id="two_kernels", marks=pytest.mark.gpu)])


@pytest.fixture(autouse=True)
def poisoned_outputs():
    """Makes torch.empty and its like return NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def planned(fused: bool | None) -> contextlib.AbstractContextManager:
    """Makes the plan's choice for it; None leaves it to the plan."""
    return (contextlib.nullcontext() if fused is None else
            mock.patch.object(gemm, "fuses", return_value=fused))


def beside_nan(x: torch.Tensor) -> torch.Tensor:
    """x as a contiguous view, with NaN before its first and after its last element."""
    around = torch.full((x.numel() + 512,), math.nan, dtype=x.dtype, device=x.device)
    return around[256:-256].view(x.shape).copy_(x)


def make(operation, rows, columns, depth, dtype, device, sizes=("n", "1")) -> list[torch.Tensor]:
    """Arguments; sizes "n" and "1" are dealt to the DyHT parameters in turn."""
    def random(*shape):
        return torch.randn(shape, device=device)

    args = [random(rows, depth).to(dtype), (random(columns, depth) * depth**-0.5).to(dtype)]
    if operation == ADD:
        args.append(random(rows, columns).to(dtype))
        args += [random(columns if sizes[i % len(sizes)] == "n" else 1) for i in range(4)]
    return [beside_nan(a) for a in args]


def run(operation, args, clip=CLIP) -> tuple[torch.Tensor, ...]:
    function = getattr(asynct_kernels, operation)
    return function(*args, *clip) if operation == ADD else (function(*args),)


def in_steps(operation, args, clip=CLIP) -> tuple[torch.Tensor, ...]:
    """The formula in the dtype of the arguments, a rounding a step."""
    x, weight, *others = args
    product = x @ weight.T
    if operation == RELU:
        gate, up = product.chunk(2, dim=-1)
        return (gate.relu() * up,)
    residual, *dyht = (other.to(x.dtype) for other in others)
    new_residual = residual + cases.dyht(product, *dyht[:2], *clip)
    return cases.dyht(new_residual, *dyht[2:], *clip), new_residual


def check(operation, args, clip=CLIP) -> None:
    """Checks against float64; the error may be twice that of the steps in PyTorch.

    Of few elements the worst may be lucky: there one unit in the last place is allowed besides.
    """
    outputs = run(operation, args, clip)
    exact = in_steps(operation, [a.double() for a in args], clip)
    steps = in_steps(operation, args, clip)
    assert len(outputs) == len(exact)
    for output, truth, stepped in zip(outputs, exact, steps):
        assert output.dtype == args[0].dtype and output.shape == truth.shape
        assert output.is_contiguous() and output.isfinite().all()
        error, allowed = ((t.double() - truth).abs() for t in (output, stepped))
        if truth.numel() < 4096:
            allowed += torch.finfo(output.dtype).eps * truth.abs()
        assert error.norm() <= 2 * allowed.norm()
        assert error.norm(math.inf) <= 2 * allowed.norm(math.inf)


@ways
@operations
@dtypes
@pytest.mark.parametrize("shape", EDGES, ids=str)
def test_values(seed, operation, dtype, way, shape):
    device, fused = way
    for sizes in ("n", "1", "n1", "1n"):
        with planned(fused):
            check(operation, make(operation, *shape, dtype, device, sizes))


@ways
@pytest.mark.parametrize("clip", cases.CLIPS)
def test_clip(seed, way, clip):
    device, fused = way
    with planned(fused):
        check(ADD, make(ADD, 130, 144, 72, torch.bfloat16, device), clip)


@ways
@operations
def test_no_tokens(operation, way):
    device, fused = way
    with planned(fused):
        for output in run(operation, make(operation, 0, 32, 16, torch.bfloat16, device)):
            assert output.shape[0] == 0


@ways
@operations
@dtypes
def test_nan_stays_in_its_row_and_column(seed, operation, dtype, way):
    device, fused = way
    args = make(operation, 200, 160, 136, dtype, device)
    args[0][77, 5] = math.nan
    args[1][33] = math.inf
    args[1][33, 0] = math.nan
    with planned(fused):
        outputs = run(operation, args)
    for output in outputs:
        expected = torch.zeros(output.shape, dtype=torch.bool)
        expected[77] = expected[:, 33] = True  # weight's row 33 is gate 33, or channel 33
        assert torch.equal(output.isnan().cpu(), expected)


@ways
@operations
def test_compiles_as_one_graph_for_any_number_of_tokens(seed, operation, way):
    device, fused = way
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    function = torch.compile(lambda *args: run(operation, args), backend=counter, fullgraph=True,
                             dynamic=True)
    with planned(fused):
        for rows in (3, 5, 300):
            args = make(operation, rows, 32, 16, torch.bfloat16, device)
            for output, expected in zip(function(*args), run(operation, args), strict=True):
                assert torch.equal(output, expected)
    assert counter.frame_count == 1


@ways
@operations
def test_opcheck(seed, operation, way):
    device, fused = way
    args = make(operation, 5, 32, 16, torch.bfloat16, device)
    with planned(fused):
        torch.library.opcheck(getattr(torch.ops.asynct, operation).default,
                              (*args, *CLIP) if operation == ADD else tuple(args))


def test_the_reference_is_the_formula_and_has_gradients(seed):
    for operation in (ADD, RELU):
        args = [a.double() for a in make(operation, 3, 16, 8, torch.float16, "cpu")]
        outputs = getattr(reference, operation)(*args)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        for output, expected in zip(outputs, in_steps(operation, args), strict=True):
            torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
        args = [a.requires_grad_() for a in args]
        assert torch.autograd.gradcheck(getattr(reference, operation), args)


X, WEIGHT, RESIDUAL, PARAMETER = (torch.zeros(4, 8).half(), torch.zeros(16, 8).half(),
                                  torch.zeros(4, 16).half(), torch.zeros(16))
GOOD = {RELU: dict(x=X, weight=WEIGHT),
        ADD: dict(x=X, weight=WEIGHT, residual=RESIDUAL, post_alpha=PARAMETER,
                  post_gamma=PARAMETER, mlp_alpha=PARAMETER, mlp_gamma=PARAMETER)}
BAD = [
    (dict(x=1), TypeError, "x is a int"),
    (dict(x=X.float()), TypeError, "x has dtype torch.float32: must be one of torch.float16, "
                                   "torch.bfloat16"),
    (dict(x=X[None]), ValueError, r"x has shape \[1, 4, 8\]: must be \[rows, columns\]"),
    (dict(x=torch.zeros(8, 4).half().T), ValueError, r"x has strides \[1, 4\] and storage offset 0: "
                                                     "must be contiguous"),
    (dict(x=torch.zeros(33).half()[1:].view(4, 8)), ValueError, "and storage offset 1"),
    (dict(weight=WEIGHT.bfloat16()), TypeError, "weight has dtype torch.bfloat16 and x"),
    (dict(weight=WEIGHT.to("meta")), ValueError, "weight is on meta and x on cpu"),
    (dict(weight=torch.zeros(16, 16).half()), ValueError,
     r"weight has shape \[16, 16\]: must be \[16, 8\]"),
    (dict(x=torch.zeros(4, 9).half(), weight=torch.zeros(16, 9).half()), ValueError,
     "columns of x are 9: must be a multiple of 8"),
    (dict(x=torch.zeros(4, 0).half(), weight=torch.zeros(16, 0).half()), ValueError,
     "columns of x are 0"),
    (dict(weight=torch.zeros(4, 8).half()), ValueError, "rows of weight are 4: must be a multiple"),
]
BAD_ADD = [
    (dict(residual=RESIDUAL.bfloat16()), TypeError, "residual has dtype torch.bfloat16 and x has"),
    (dict(residual=RESIDUAL[:3]), ValueError, r"residual has shape \[3, 16\]: must be \[4, 16\]"),
    (dict(residual=torch.zeros(16, 4).half().T), ValueError, "residual has strides"),
    (dict(post_alpha=PARAMETER.half()), TypeError, "post_alpha has dtype torch.float16: must be "
                                                   "one of torch.float32"),
    (dict(mlp_gamma=torch.zeros(3)), ValueError, r"mlp_gamma has shape \[3\]: must be \[16\] or"),
    (dict(clip_min=1.0, clip_max=-1.0), ValueError, "clip_min is 1.0 and clip_max is -1.0"),
    (dict(clip_min="low"), TypeError, "clip_min is 'low'"),
]


@pytest.mark.parametrize("operation, changes, error, message", [
    *((operation, *bad) for operation in GOOD for bad in BAD), *((ADD, *bad) for bad in BAD_ADD)])
def test_bad_arguments_are_named(operation, changes, error, message):
    function = getattr(asynct_kernels, operation)
    function(**GOOD[operation])
    with pytest.raises(error, match=message):
        function(**GOOD[operation] | changes)


@pytest.mark.parametrize("rows, columns, fused", [
    (1, 12288, False), (256, 12288, False), (512, 12288, True), (512, 2048, False),
    (1024, 2048, True), (1280, 2048, False), (2048, 2048, True), (2047, 2048, False),
    (896, 12288, False), (5000, 12288, True), (10**6, 128, True)])
def test_the_plan_fuses_where_tiles_fill_the_card(monkeypatch, rows, columns, fused):
    monkeypatch.setattr(gemm, "_card", lambda device: ((9, 0), 132))
    assert gemm.fuses(rows, columns, torch.device("cuda")) == fused
    monkeypatch.setattr(gemm, "_card", lambda device: ((8, 0), 108))
    assert not gemm.fuses(rows, columns, torch.device("cuda"))


@pytest.mark.parametrize("rows, waves", [(0, 1), (1, 1), (1024, 1), (1280, 2), (2048, 2), (2305, 3)])
def test_share_of_the_card(rows, waves):
    assert gemm.share_of_card(rows, 2048, 132) == rows * 2048 / (waves * 66 * 256 * 128)


@pytest.mark.gpu
@operations
@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_of_the_models(seed, operation, dtype):
    for columns, depth in MODELS[operation]:
        for rows in (1, 33, 128, 1000, 4099):
            with planned(True):
                check(operation, make(operation, rows, columns, depth, dtype, "cuda"))


@pytest.mark.gpu
@operations
def test_many_tokens_are_one_kernel_and_few_are_two(seed, operation):
    follower = {ADD: "PostAttnPreMlpUclipOutKernel", RELU: "ReluAndMulKernel"}[operation]
    for rows, expected in ((8192, (1, 0)), (32, (0, 1))):
        args = make(operation, rows, 4096, 1024, torch.bfloat16, "cuda")
        run(operation, args)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run(operation, args)
            torch.cuda.synchronize()
        names = [event.name for event in profile.events()]
        count = tuple(sum(kernel in name for name in names)
                      for kernel in ("device_kernel", follower))
        assert count == expected, names


@pytest.mark.gpu
@operations
def test_writes_its_outputs_and_nothing_else(seed, operation):
    rows, columns = 200, 144
    args = make(operation, rows, columns, 72, torch.bfloat16, "cuda")
    guarded = [torch.full((rows + 256, columns), 7.0, dtype=torch.bfloat16, device="cuda")
               for _ in range(2 if operation == ADD else 1)]
    if operation == ADD:
        outputs = [g[128:-128] for g in guarded]
        cuda.linear_add_uclip(outputs, *args, *CLIP)
    else:
        guarded = [g.view(-1, columns // 2) for g in guarded]
        outputs = [guarded[0][128:128 + rows]]
        cuda.linear_relu_and_mul(outputs[0], *args)
    with planned(True):
        for guard, output, expected in zip(guarded, outputs, run(operation, args)):
            assert torch.equal(output, expected)
            assert (guard[:128] == 7).all() and (guard[128 + rows:] == 7).all()


@pytest.mark.gpu
@operations
def test_same_bits_in_every_run_and_for_every_batch(seed, operation):
    args = make(operation, 2000, 2048, 1024, torch.bfloat16, "cuda")
    with planned(True):
        first = run(operation, args)
        for _ in range(200):
            assert all(torch.equal(a, b) for a, b in zip(run(operation, args), first))
        for rows in (1, 130, 1999):
            part = [a[:rows] if a.shape[0] == 2000 else a for a in args]
            assert all(torch.equal(a, b[:rows]) for a, b in zip(run(operation, part), first))


@pytest.mark.gpu
@operations
@pytest.mark.parametrize("fused", [True, False])
def test_graph_replays_on_new_inputs(seed, operation, fused):
    args = make(operation, 133, 256, 128, torch.bfloat16, "cuda")
    with planned(fused):
        with torch.cuda.stream(torch.cuda.Stream()):
            run(operation, args)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = run(operation, args)
        for _ in range(3):
            for output in outputs:
                output.fill_(math.nan)
            for old, new in zip(args, make(operation, 133, 256, 128, torch.bfloat16, "cuda")):
                old.copy_(new)
            graph.replay()
            assert all(torch.equal(a, b) for a, b in zip(outputs, run(operation, args)))


@pytest.mark.gpu
@operations
def test_runs_on_the_current_stream(seed, operation):
    args = make(operation, 133, 256, 128, torch.bfloat16, "cuda")
    with planned(True):
        expected = run(operation, args)
        late = [torch.zeros_like(a) for a in args]
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(20_000_000)  # cycles: on another stream the kernel would see zeros
            for a, b in zip(late, args):
                a.copy_(b)
            outputs = run(operation, late)
            torch.cuda.current_stream().synchronize()
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected))


@pytest.mark.gpu
def test_a_product_waits_for_the_one_ahead(seed):
    """The second of two starts early, and must not read what the first has yet to write."""
    rows, width = 1500, 2048
    first = make(ADD, rows, width, width, torch.bfloat16, "cuda")
    weight = make(RELU, 0, 4096, width, torch.bfloat16, "cuda")[1]
    with planned(True):
        for _ in range(50):
            first[0].normal_()
            torch.cuda.synchronize()
            hidden, _ = run(ADD, first)
            outputs = run(RELU, [hidden, weight])
            torch.cuda.synchronize()
            assert all(torch.equal(a, b) for a, b in zip(outputs, run(RELU, [hidden, weight])))


@pytest.mark.gpu
@operations
def test_offsets_past_32_bits(seed, operation):
    """Outputs of more than 2^31 elements."""
    torch.use_deterministic_algorithms(False)
    columns, depth = 8192, 64
    rows = 2 * 2**31 // columns + 300
    args = make(operation, 300, columns, depth, torch.bfloat16, "cuda")
    with planned(True):
        expected = run(operation, args)
        long = [a.repeat(rows // 300 + 1, 1)[-rows:].contiguous() if a.shape[0] == 300 else a
                for a in args]
        for output, last in zip(run(operation, long), expected):
            assert torch.equal(output[-300:], last)
