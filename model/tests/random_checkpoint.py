"""Small AsyncT checkpoints of random weights, scaled so that the attention decides the logits.

With the usual small initial weights the logits are flat, and a model with broken attention passes
for a right one. Here gates are closed, partly open and fully open in comparable numbers, and the
attention's output is as large as the rest of the residual stream, for contexts of 1 to 300 tokens.
"""

from pathlib import Path

import torch
from asynct_model import AsyncTConfig
from asynct_model.checkpoint import WEIGHTS_FILE, expected_tensors
from safetensors.torch import save_file

_SHAPE = dict(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=1024,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    architectures=["AsyncTForCausalLM"],
    dtype="float32",
)

# Per-head and DyHT vectors are uniform in a range, the first whose name ends the tensor's.
_RANGES = {
    "self_attn.sigma": (0.2, 0.9),
    "self_attn.alpha": (10.0, 40.0),
    "self_attn.gamma": (0.3, 1.0),
    "post_attn_layernorm.gamma": (1.0, 2.0),
    "model.norm.gamma": (0.1, 0.5),
    "norm.alpha": (0.2, 0.8),
    "norm.gamma": (0.5, 1.5),
}
# Matrices are normal, with this deviation over the root of their inputs.
_DEVIATIONS = {"q_proj": 3.0, "k_proj": 3.0, "v_proj": 2.0, "embed_tokens": 5.0, "lm_head": 5.0}


def random_config(**fields) -> AsyncTConfig:
    """A small configuration, with some fields changed."""
    return AsyncTConfig(**{**_SHAPE, **fields})


def random_tensors(config: AsyncTConfig, seed: int) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint of `config`, in float32."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _random_tensor(name, shape, generator)
        for name, shape in expected_tensors(config).items()
    }


def save_checkpoint(
    directory: Path, config: AsyncTConfig, tensors: dict[str, torch.Tensor]
) -> Path:
    """Writes a checkpoint of what `tensors` holds, right or wrong, and returns its directory."""
    directory.mkdir(parents=True)
    config.save_pretrained(directory)
    save_file(tensors, directory / WEIGHTS_FILE, metadata={"format": "pt"})
    return directory


def random_checkpoint(directory: Path, seed: int, **fields) -> Path:
    """Writes a random checkpoint of `random_config(**fields)` and returns its directory."""
    config = random_config(**fields)
    return save_checkpoint(directory, config, random_tensors(config, seed))


def _random_tensor(name: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    if len(shape) == 1:
        low, high = next(bounds for end, bounds in _RANGES.items() if name.endswith(end))
        return low + (high - low) * torch.rand(shape, generator=generator)
    deviation = _DEVIATIONS.get(name.split(".")[-2], 1.0) * shape[1] ** -0.5
    return deviation * torch.randn(shape, generator=generator)
