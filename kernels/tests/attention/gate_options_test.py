"""Every option of the gate, and per-head parameters of any sign, in every kernel."""

import math

import torch

from asynct_kernels import GateParams
from oracle import assert_accurate, truth
from problems import Case, run
from under_test import arguments, runs

STEPS = {
    "decode": dict(query_lens=(1,) * 5, seq_lens=(1, 3, 70, 300, 777)),
    "prefill": dict(query_lens=(70, 1, 40), seq_lens=(70, 30, 200)),
    "prompts": dict(query_lens=(70, 1, 140), seq_lens=(70, 1, 140)),
}


def gate(*parameters, **options):
    """Makes a gate whose sigma, alpha, gamma are given: a float each, or "signed" per head."""

    def make(case, device):
        tensors = [torch.randn(case.heads, device=device) * 1.2 if p == "signed" else p
                   for p in parameters]
        return GateParams(*tensors, window=case.window, **options)

    return make


def some_zero(case, device):
    """Parameters of any sign, each zero for another head."""
    sigma, alpha, gamma = torch.randn(3, case.heads, device=device)
    sigma[0] = alpha[1] = gamma[2] = 0.0
    return GateParams(sigma, alpha, gamma)


ANY = ("signed", "signed", "signed")
GATES = {
    "zeros-per-head": dict(gate=some_zero),
    "floats": dict(gate=gate(1.0, 0.4, -0.7)),
    "sigma-zero": dict(gate=gate(0.0, 0.3, 1.0)),
    "sigma-negative": dict(gate=gate(-0.5, 0.3, 1.0)),
    "alpha-zero": dict(gate=gate(1.0, 0.0, 1.0)),
    "alpha-negative": dict(gate=gate(1.0, -0.4, 1.0)),
    "gamma-zero": dict(gate=gate(1.0, 0.4, 0.0)),
    "signed": dict(gate=gate(*ANY)),
    "saturated": dict(gate=gate(1.0, "signed", 1.0, scale=1.0)),
    "negative-scale": dict(gate=gate("signed", 0.5, 1.0, scale=-0.01)),
    "all-zero": dict(gate=gate(0.0, 1.0, 1.0), shift=-8.0),
    "all-one": dict(gate=gate(0.0, 1.0, 1.0), shift=8.0),
    "half-zero": dict(gate=gate(1.0, 0.5, 1.0), shift=1.5),
    "few-open": dict(gate=gate(1.0, 0.5, 1.0), shift=-1.3),
    "no-relu": dict(gate=gate(*ANY, relu_pre=False)),
    "weights": dict(gate=gate(*ANY, weights=(0.7, -0.4, 1.5))),
    "weights-zero": dict(gate=gate(*ANY, weights=(0.0, 0.0, 1.0))),
    **{f"window{k}": dict(window=k, gate=gate(*ANY)) for k in (1, 2, 4, 5, 6, 7, 8)},
    "window5-all": dict(window=5, gate=gate(*ANY, weights=(0.5, -0.1, 0.2, 0.9, -1.0),
                                            relu_pre=False, clip=(-0.7, 0.3))),
    "clip-both": dict(gate=gate(*ANY, clip=(-1.0, 1.0))),
    "clip-positive": dict(gate=gate(*ANY, clip=(0.25, 2.0))),
    "clip-negative": dict(gate=gate(*ANY, clip=(-2.0, -0.5))),
    "clip-point": dict(gate=gate(*ANY, clip=(0.5, 0.5))),
    "clip-open": dict(gate=gate(*ANY, clip=(-math.inf, math.inf))),
    "clip-below": dict(gate=gate(*ANY, clip=(-math.inf, 0.5))),
}

CASES = [Case(name=f"{step}-{name}", **lengths, **options)
         for step, lengths in STEPS.items() for name, options in GATES.items()]


@runs(CASES)
def test_accurate(seed, case, kernel, device):
    facts = truth(case, device, seed)
    assert_accurate(run(kernel, arguments(kernel, facts.call)), facts)
    if case.name.endswith("-all-zero"):
        assert not facts.exact.any()
