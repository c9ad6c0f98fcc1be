"""float8 in the KV cache and in the weights: as near to the exact model as PyTorch's own float8."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from asynct_model import AsyncTForCausalLM
from asynct_vllm import counters
from device_engine import ON_GPU, device_engine, device_model, device_tensors
from random_checkpoint import save_checkpoint
from vllm import RequestOutput
from vllm_engine import (
    expected,
    generate,
    random_prompts,
    root_mean_square,
    served,
)

FLOAT8 = torch.float8_e4m3fn
MOST = torch.finfo(FLOAT8).max
PROMPT_LENGTHS = (1, 3, 16, 33, 150, 300)

# The largest |K| and |V| that the cache can hold, within a factor of 1.5: some are larger.
LARGEST_KEY, LARGEST_VALUE = 1.0, 1.5


def rounded(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """x as float8 times `scale` holds it."""
    return ((x.float() / scale).clamp(-MOST, MOST).to(FLOAT8).float() * scale).to(x.dtype)


def save_scales(folder: Path, config, tensors: dict, strategy: str) -> list[dict]:
    """Writes the checkpoint with scales of its own a tensor or a head; returns them by layer."""
    shape = (config.num_key_value_heads,) if strategy == "attn_head" else (1,)
    scales = [{name: largest / MOST * (0.5 + torch.rand(shape))
               for name, largest in (("k", LARGEST_KEY), ("v", LARGEST_VALUE))}
              for _ in range(config.num_hidden_layers)]
    named = {f"model.layers.{layer}.self_attn.{name}_scale": scale
             for layer, pair in enumerate(scales) for name, scale in pair.items()}
    config.quantization_config = dict(
        quant_method="compressed-tensors", format="float-quantized", config_groups={}, ignore=[],
        kv_cache_scheme=dict(num_bits=8, type="float", strategy=strategy, dynamic=False,
                             symmetric=True),
    )
    save_checkpoint(folder, config, {**tensors, **named})
    return scales


def round_cache(model: AsyncTForCausalLM, scales: list[dict]) -> AsyncTForCausalLM:
    """Lets a model's attention see K and V as the float8 cache holds them."""
    for layer, pair in zip(model.model.layers, scales, strict=True):
        attention = layer.self_attn
        k_scale, v_scale = (pair[name].to(model.device)[:, None] for name in "kv")

        def project(*args, project=attention.project, k_scale=k_scale, v_scale=v_scale):
            query, key, value = project(*args)
            return query, rounded(key, k_scale), rounded(value, v_scale)

        attention.project = project
    return model


def assert_near(
    outputs: list[RequestOutput], model: Callable[[torch.dtype], AsyncTForCausalLM], feature: str
) -> torch.Tensor:
    """No further from `model` in float32 than twice as far as `model` in bfloat16 is.

    Returns:
        float32's log-probabilities.
    """
    exact, plain = (expected(outputs, model(dtype)) for dtype in (torch.float32, torch.bfloat16))
    error, rounding = root_mean_square(served(outputs), exact), root_mean_square(plain, exact)
    print(f"{feature}: dlogprob {error:.1e}, of PyTorch in bfloat16 {rounding:.1e}; "
          f"by {counters.snapshot()}")
    assert error <= 2 * rounding
    assert not ON_GPU or all(name.startswith("hp1_") for name in counters.snapshot())
    return exact


@pytest.mark.parametrize("strategy", ("one", "tensor", "attn_head"))
def test_kv_cache(strategy, tmp_path, seed):
    """A scale of 1 is the user's choice (kv_cache_dtype); others are the checkpoint's."""
    config, tensors = device_tensors(seed)
    plain = save_checkpoint(tmp_path / "plain", config, tensors)
    if strategy == "one":
        scales = [{name: torch.ones(1) for name in "kv"}] * config.num_hidden_layers
        checkpoint, settings = plain, dict(kv_cache_dtype="fp8")
    else:
        checkpoint, settings = tmp_path / "scaled", {}
        scales = save_scales(checkpoint, config, tensors, strategy)
    with device_engine(checkpoint, **settings) as llm:
        assert llm.llm_engine.vllm_config.cache_config.cache_dtype.startswith("fp8")
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    exact = assert_near(
        outputs,
        lambda dtype: round_cache(device_model(plain, dtype), scales),
        f"float8 cache, scales: {strategy}",
    )
    if strategy != "one":
        unrounded = expected(outputs, device_model(plain, torch.float32))
        effect = root_mean_square(unrounded, exact)
        print(f"the cache's rounding: dlogprob {effect:.1e}")
        assert effect > 2 * root_mean_square(served(outputs), exact)


def round_products(model: AsyncTForCausalLM) -> None:
    """Lets a model multiply float8 weights, scaled by tensor, with inputs scaled by token."""
    for linear in (module for layer in model.model.layers for module in layer.modules()
                   if isinstance(module, torch.nn.Linear)):
        weight = linear.weight.data
        linear.weight.data = rounded(weight, weight.abs().max().float() / MOST)
        linear.register_forward_pre_hook(lambda _, inputs: (
            rounded(inputs[0], inputs[0].abs().amax(-1, keepdim=True).float() / MOST),))


@pytest.mark.gpu
def test_weights(tmp_path, seed):
    checkpoint = save_checkpoint(tmp_path / "checkpoint", *device_tensors(seed))
    with device_engine(checkpoint, quantization="fp8") as llm:
        dtypes = llm.apply_model(lambda model: {p.dtype for p in model.parameters()})[0]
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS))
    assert FLOAT8 in dtypes
    exact = expected(outputs, device_model(checkpoint, torch.float32))
    model = device_model(checkpoint, torch.bfloat16)
    round_products(model)
    rounding = root_mean_square(expected(outputs, model), exact)
    error = root_mean_square(served(outputs), exact)
    print(f"fp8 weights: dlogprob {error:.1e}, of PyTorch in float8 {rounding:.1e}")
    assert error <= 2 * rounding
