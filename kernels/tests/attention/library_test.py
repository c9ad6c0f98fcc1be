"""torch.ops.asynct: torch.library's own checks, torch.compile, and which kernels are launched."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from asynct_kernels import GateParams, attend, attention_kernels
from asynct_kernels.attention import find_kernel
from problems import Case, run
from under_test import INTERPRETED, arguments, runs

CASES = [
    Case(name="decode", query_lens=(1, 1), seq_lens=(5, 300)),
    Case(name="prefill", query_lens=(5, 20), seq_lens=(25, 20)),
    Case(name="prompts", query_lens=(5, 20), seq_lens=(5, 20)),
]

# Parts of the names of what a kernel launches, in order.
LAUNCHES = {
    "hp1_decode_paged": ["DecodeScheduleKernel", "DecodePagedKernel"],
    "hp1_prefill_mma": ["PrefillMmaKernel"],
    "hp1_prefill_wgmma": ["ScheduleKernel", "prefill_wgmma::Kernel"],
    "hp1_prefill_super_page": ["ReshapeAndCacheKernel", "ScheduleKernel", "prefill_wgmma::Kernel"],
    "hp1_prefill_gather": ["GatherPagesKernel", "ScheduleKernel", "prefill_wgmma::Kernel"],
    "triton_decode": ["attend_tiles", "sum_splits"],
    "triton_prefill": ["attend_tiles"],
}


def flat(given):
    """The operation's keywords, of attend's."""
    gate, rest = given["gate"], {k: v for k, v in given.items() if k != "gate"}
    if norm_rope := rest.pop("qk_norm_rope", None):
        rest |= norm_rope.tensors() | dict(norm_min=norm_rope.clip[0], norm_max=norm_rope.clip[1])
    return rest | dict(
        sigma=gate.sigma, alpha=gate.alpha, gamma=gate.gamma, scale=gate.scale,
        weights=list(gate.taps), relu_pre=gate.relu_pre, clip_min=0.0, clip_max=1.0,
        out=torch.zeros_like(given["query"]), workspace=None)


@runs(CASES)
def test_opcheck(seed, case, kernel, device):
    operation = getattr(torch.ops.asynct, kernel).default
    torch.library.opcheck(operation, (), flat(arguments(kernel, case.make(device))))


@pytest.mark.skipif(INTERPRETED, reason="Triton's interpreter is no part of torch.compile")
@runs(CASES)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph_for_any_number_of_tokens(seed, case, kernel, device, backend):
    torch.compiler.reset()
    call = case.make(device)
    given = arguments(kernel, call)
    names = ("query", *(name for name in ("key", "value", "slot_mapping") if name in given))
    rest = {k: v for k, v in given.items() if k not in ("gate", *names)}

    def layer(sigma, rows):
        gate = GateParams(sigma, 0.5, 1.0)
        query = rows["query"] * 1.0
        return attend(**rest, **rows | dict(query=query), gate=gate, kernel=kernel) * 1.0

    sigma = call.gate.sigma.clone()  # of no tensor whose size could be taken for that of another
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
    frames = set()
    for padding in (9, 0, 4):
        rows = {name: torch.cat([given[name], given[name][:1].repeat_interleave(padding, 0)])
                for name in names}
        expected = layer(sigma, rows)
        output = compiled(sigma, rows)
        assert torch.equal(output[:call.tokens], expected[:call.tokens])
        frames.add(counter.frame_count)
    assert len(frames) == 1, "compiled again for another number of tokens"


@runs(CASES, LAUNCHES, on_cpu=False)
def test_launches_its_own_kernels(seed, case, kernel, device):
    given = arguments(kernel, case.make(device))
    out = torch.empty_like(given["query"])
    run(kernel, given)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        attend(**given, kernel=kernel, out=out)
        torch.cuda.synchronize()
    # What the profiler itself adds has "(Device)" in its name, or "Activity Buffer".
    names = [event.name for event in profile.events()
             if event.device_type == torch.autograd.DeviceType.CUDA
             and "(Device)" not in event.name and "Buffer" not in event.name]
    assert len(names) == len(LAUNCHES[kernel]), names
    for name, part in zip(names, LAUNCHES[kernel]):
        assert part in name


def test_every_kernel_has_its_operation():
    assert set(attention_kernels()) == {"reference", *LAUNCHES}
    for kernel in attention_kernels():
        operation = getattr(torch.ops.asynct, kernel).default
        mutated = {argument.name for argument in operation._schema.arguments
                   if argument.alias_info is not None and argument.alias_info.is_write}
        writes_cache = find_kernel(kernel).limits.fresh != "refused"
        assert mutated == {"out", "workspace"} | ({"k_cache", "v_cache"} if writes_cache else set())
