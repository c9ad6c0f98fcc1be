"""The model compiled by vLLM: one graph, and the same numbers."""

import torch
from asynct_model import AsyncTConfig
from asynct_model.vllm_layers import DyHT
from asynct_vllm import builder, layer
from asynct_vllm.plan import Plan
from random_checkpoint import random_checkpoint
from torch._dynamo.utils import counters
from vllm_engine import (
    TOLERANCE,
    difference,
    engine,
    expected,
    generate,
    random_prompts,
    reference_model,
    root_mean_square,
    served,
)


def test_compiled_model_matches(tmp_path, seed):
    checkpoint = random_checkpoint(tmp_path / "checkpoint", seed, num_hidden_layers=2)
    counters.clear()
    with engine(checkpoint, enforce_eager=False) as llm:
        assert not llm.apply_model(lambda model: model.model.do_not_compile)[0]
        outputs = generate(llm, random_prompts())
    worst = difference(outputs, reference_model(checkpoint))
    print(f"compiled: max |dlogprob| {worst:.1e}")
    assert worst < TOLERANCE
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"]


def test_compiled_model_leaves_dyht_and_rope_to_the_attention(tmp_path, seed, monkeypatch):
    """As with CUDA's kernels, for which the reference kernel stands in."""
    monkeypatch.setattr(layer, "norm_rope_reasons", lambda *_: [])
    monkeypatch.setattr(builder, "plan", lambda shape, *_: Plan(
        None, "reference" if shape.num_decodes else None,
        "reference" if shape.num_prefills else None, "a test"))
    checkpoint = random_checkpoint(tmp_path / "checkpoint", seed, num_hidden_layers=2)
    counters.clear()
    with engine(checkpoint, enforce_eager=False, dtype="bfloat16") as llm:
        assert all(llm.apply_model(
            lambda model: all(part.self_attn.attn.takes_raw for part in model.model.layers)))
        outputs = generate(llm, random_prompts())
    exact, plain = (expected(outputs, reference_model(checkpoint, dtype))
                    for dtype in (torch.float32, torch.bfloat16))
    error, rounding = (root_mean_square(logprobs, exact) for logprobs in (served(outputs), plain))
    print(f"raw: dlogprob {error:.1e}, of plain bfloat16 {rounding:.1e}")
    assert error <= 2 * rounding
    assert counters["stats"]["unique_graphs"] > 0
    assert not counters["graph_break"]


def test_the_compiler_gets_formulas_to_fuse(seed):
    norm = DyHT(AsyncTConfig.preset("asynct-0.6b"), "input_layernorm")
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    x, residual = torch.randn(2, 3, norm.alpha.numel(), dtype=torch.bfloat16)
    compiled = torch.compile(norm, backend=backend, fullgraph=True)(x, residual)
    assert all(torch.equal(*pair) for pair in zip(compiled, norm(x, residual), strict=True))
    assert not [node for node in graphs[0].graph.nodes if "asynct" in str(node.target)]
