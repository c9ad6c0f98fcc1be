"""The vLLM model over configurations, precisions, dummy weights and LoRA, against Hugging Face."""

import json
import math

import pytest
import torch
from asynct_model.configuration import FINAL_DYHT, LAYER_DYHT
from asynct_vllm import counters
from random_checkpoint import random_checkpoint, random_config, random_tensors, save_checkpoint
from safetensors.torch import save_file
from vllm.lora.request import LoRARequest
from vllm_engine import (
    BROKEN,
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


def test_lora_adapter_is_added_to_every_projection(tmp_path, seed):
    config, rank, scaling = random_config(), 8, 2.0
    tensors = random_tensors(config, seed)
    checkpoint = save_checkpoint(tmp_path / "checkpoint", config, tensors)
    adapter = {}
    for name in [name for name in tensors if "_proj." in name]:
        outputs, inputs = tensors[name].shape
        down = torch.randn(rank, inputs) * inputs**-0.5
        up = torch.randn(outputs, rank) * 0.3 * rank**-0.5
        tensors[name] = tensors[name] + scaling * up @ down
        module = f"base_model.model.{name.removesuffix('.weight')}"
        adapter |= {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up}
    merged = save_checkpoint(tmp_path / "merged", random_config(), tensors)
    (tmp_path / "adapter").mkdir()
    save_file(adapter, tmp_path / "adapter" / "adapter_model.safetensors")
    settings = dict(
        peft_type="LORA",
        r=rank,
        lora_alpha=scaling * rank,
        target_modules=sorted({name.split(".")[-2] for name in tensors if "_proj." in name}),
    )
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    with engine(checkpoint, enable_lora=True) as llm:
        request = LoRARequest("random", 1, str(tmp_path / "adapter"))
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS), lora_request=request)
    worst = difference(outputs, reference_model(merged))
    print(f"LoRA: max |dlogprob| {worst:.1e}")
    assert worst < TOLERANCE
    assert difference(outputs, reference_model(checkpoint)) > BROKEN


def _root_mean_square(x: torch.Tensor) -> float:
    return x.square().mean().sqrt().item()
