"""The vLLM model over configurations, precisions and dummy weights, against Hugging Face."""

import math

import pytest
import torch
from asynct_model.configuration import FINAL_DYHT, LAYER_DYHT
from asynct_vllm import counters
from random_checkpoint import random_checkpoint, random_config
from vllm_engine import (
    TOLERANCE,
    difference,
    engine,
    expected,
    generate,
    max_difference,
    random_prompts,
    reference_model,
    served,
)

PROMPT_LENGTHS = (1, 3, 33, 150)

CONFIGURATIONS = {
    "untied": dict(tie_word_embeddings=False),
    "scalars": dict(
        scalar_dyht=[
            f"{name}.{part}" for name in (*LAYER_DYHT, FINAL_DYHT) for part in ("alpha", "gamma")
        ]
    ),
    "channels": dict(scalar_dyht=[]),
    "gate": dict(
        attention_window=4,
        attention_weights=[0.1, 0.6, -0.2, 0.4],
        attention_relu_pre=False,
        attention_clip=[-0.2, 0.7],
        attention_scale=0.05,
        dyht_clip=[-0.6, 1.2],
    ),
    "one kv head": dict(num_key_value_heads=1, rope_parameters={"rope_theta": 1e6}),
}


@pytest.mark.parametrize("fields", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_configurations_match(fields, tmp_path, seed):
    checkpoint = random_checkpoint(tmp_path / "checkpoint", seed, **fields)
    with engine(checkpoint) as llm:
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    worst = difference(outputs, reference_model(checkpoint))
    print(f"{fields}: max |dlogprob| {worst:.1e}")
    assert worst < TOLERANCE


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_as_near_as_eager_half_precision(dtype, tmp_path, seed):
    checkpoint = random_checkpoint(tmp_path / "checkpoint", seed)
    with engine(checkpoint, dtype=str(dtype).removeprefix("torch.")) as llm:
        outputs = generate(llm, random_prompts())
        dtypes = llm.apply_model(lambda model: {n: p.dtype for n, p in model.named_parameters()})[0]
    for name, parameter_dtype in dtypes.items():
        vector = name.rpartition(".")[2] in ("sigma", "alpha", "gamma")
        assert parameter_dtype == (torch.float32 if vector else dtype), name
    exact = expected(outputs, reference_model(checkpoint))
    eager = _root_mean_square(expected(outputs, reference_model(checkpoint, dtype)) - exact)
    ours = _root_mean_square(served(outputs) - exact)
    print(f"{dtype}: root mean square dlogprob {ours:.1e}, eager {eager:.1e}")
    assert ours < 2 * eager


def test_dummy_weights_run(tmp_path):
    random_config().save_pretrained(tmp_path)
    counters.reset()
    with engine(tmp_path, load_format="dummy") as llm:
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    flat = torch.full((), -math.log(random_config().vocab_size))  # vLLM's dummies are tiny
    assert max_difference(served(outputs), flat) < 0.01
    assert sum(hits.tokens for hits in counters.snapshot().values()) > 0


def _root_mean_square(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()
