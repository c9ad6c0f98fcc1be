"""A graph captured once serves other lengths, tables, inputs and gates, with the bits of eager."""

import dataclasses
import math

import pytest
import torch

from asynct_kernels import GateParams, attend, attention_kernels, workspace_bytes
from problems import Case, as_bytes, run
from under_test import arguments, runs

TOKENS, BLOCKS, BLOCK_SIZE = 160, 220, 16
WIDTH = 100  # of the tables

DECODES = [(0, 1, 2, 3, 1600, 17, 64, 300), (0,) * 8, (5, 1000, 65, 0, 16, 15, 700, 128),
           (1,) * 8]
EXTENSIONS = [((3, 0, 64, 1), (700, 0, 64, 30)), ((0, 0, 0, 0), (0, 0, 0, 0)),
              ((1, 1, 1, 1), (1, 1600, 16, 17)), ((100, 50, 2, 8), (100, 51, 300, 1000))]
PROMPTS = [(3, 0, 64, 1), (0, 0, 0, 0), (160, 0, 0, 0), (16, 17, 100, 5)]


def padded(name, query_lens, seq_lens):
    """A case of TOKENS rows, BLOCKS blocks and tables of WIDTH columns, whatever the lengths."""
    needed = [-(-length // BLOCK_SIZE) for length in seq_lens]
    return Case(name=name, query_lens=query_lens, seq_lens=seq_lens, block_size=BLOCK_SIZE,
                padding=TOKENS - sum(query_lens), spare_blocks=BLOCKS - 1 - sum(needed),
                spare_columns=WIDTH - max(needed))


# The bounds of the queries and keys of a request, and the steps that they hold for.
STEPS = {
    "decode": (1, 1600, [padded("decode", (1,) * 8, lengths) for lengths in DECODES]),
    "extension": (100, 1600, [padded("extension", *lengths) for lengths in EXTENSIONS]),
    "prompts": (TOKENS, TOKENS, [padded("prompts", lengths, lengths) for lengths in PROMPTS]),
}


def tensors(given):
    """Every tensor of attend's keywords, those of the gate included."""
    gate = given["gate"]
    named = dict(sigma=gate.sigma, alpha=gate.alpha, gamma=gate.gamma)
    return named | {k: v for k, v in given.items() if isinstance(v, torch.Tensor)}


@runs([steps[0] for *_, steps in STEPS.values()],
      [kernel for kernel in attention_kernels() if kernel != "reference"], on_cpu=False)
def test_replays_have_the_bits_of_eager(seed, case, kernel, device):
    max_query_len, max_seq_len, steps = STEPS[case.name.removesuffix("-raw")]
    bounds = dict(max_query_len=max_query_len, max_seq_len=max_seq_len)
    steps = [dataclasses.replace(step, raw=case.raw) for step in steps]
    static = arguments(kernel, steps[0].make(device)) | bounds
    static["workspace"] = torch.full((workspace_bytes(kernel, **static),), 0xFF, dtype=torch.uint8,
                                     device=device)
    out = torch.full_like(static["query"], math.nan)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        attend(**static, kernel=kernel, out=out)  # compiles what is to be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        attend(**static, kernel=kernel, out=out)
    for step in (*steps, *reversed(steps)):
        given = arguments(kernel, step.make(device)) | bounds
        for name, value in tensors(given).items():
            as_bytes(tensors(static)[name]).copy_(as_bytes(value))
        out.fill_(math.nan)
        graph.replay()
        expected = run(kernel, given)
        assert torch.equal(out.view(torch.int16), expected.view(torch.int16))
        for name in ("k_cache", "v_cache"):
            assert torch.equal(static[name].nan_to_num(), given[name].nan_to_num())


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", attention_kernels())
def test_bounds_are_wanted_under_capture(seed, kernel):
    given = Case(name="bounds", query_lens=(1,), seq_lens=(20,)).make("cuda").arguments()
    del given["max_seq_len"]
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(
            RuntimeError, match="max_query_len and max_seq_len must be given"):
        attend(**given, kernel=kernel)


@pytest.mark.gpu
def test_the_reference_refuses_to_be_captured(seed):
    given = Case(name="capture", query_lens=(1,), seq_lens=(20,)).make("cuda").arguments()
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(
            ValueError, match="reference cannot serve this call: a CUDA graph is being captured"):
        attend(**given, kernel="reference")


@runs([steps[2] for *_, steps in STEPS.values()], on_cpu=False)
def test_runs_on_the_current_stream(seed, case, kernel, device):
    """Inputs that are written late, on the stream that the call is on."""
    call = case.make(device)
    given = arguments(kernel, call)
    expected = run(kernel, given)
    late = arguments(kernel, call) | dict(query=torch.zeros_like(given["query"]))
    late["gate"] = GateParams(*(p.clone() for p in (call.gate.sigma, call.gate.alpha,
                                                    call.gate.gamma)))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(20_000_000)  # cycles: on another stream the kernel would see the zeros
        late["query"].copy_(given["query"])
        output = run(kernel, late)
        torch.cuda.current_stream().synchronize()
    assert torch.equal(output.view(torch.int16), expected.view(torch.int16))
