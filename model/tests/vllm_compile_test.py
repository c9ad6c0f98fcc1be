"""The model compiled by vLLM: one graph, and the same numbers."""

import torch
from asynct_model import AsyncTConfig
from asynct_model.vllm_layers import DyHT
from random_checkpoint import random_checkpoint
from torch._dynamo.utils import counters
from vllm_engine import (
    TOLERANCE,
    difference,
    engine,
    generate,
    random_prompts,
    reference_model,
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
