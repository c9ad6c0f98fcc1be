"""Checkpoints of random weights: AsyncT with a chosen share of closed gates, and its rival."""

from __future__ import annotations

import pathlib

import asynct_model  # noqa: F401  registers AsyncT with transformers
import qwen3_shape
import torch
from asynct_kernels import GateParams, apply_gate
from asynct_model import AsyncTConfig, AsyncTForCausalLM
from asynct_model.checkpoint import WEIGHTS_FILE
from asynct_model.modeling import AsyncTAttention, AsyncTDyHT
from asynct_tiny.sparsity import sparsity
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

# Tokens of a prompt on which gates are set, and of another on which they are measured.
_TOKENS = 1024
# The deviation of the embeddings, which are the output matrix as well: a layer adds about 1 to the
# stream, so that a token is told from its neighbours but is not its own likeliest successor.
_EMBEDDING_DEVIATION = 0.25
_LOGIT_DEVIATION = 2.0
# alpha in units of D: gates that are open are partly and fully so in comparable numbers.
_GATE_ALPHA_PER_DIM = 0.125
_BISECTIONS = 16
_MAX_SIGMA = 3.0  # at sigma = K = 3 a score is always below its own share of the average


def save_asynct(
    config: AsyncTConfig, folder: pathlib.Path, *, zeros: float, dtype: torch.dtype, seed: int
) -> None:
    """Writes a random checkpoint in which `zeros` (0 to 1) of the gates are closed.

    Matrices are as transformers initialises them. DyHTs and gates are set from what they see of a
    random prompt: DyHT's alpha so that its input has unit deviation, sigma by bisection.
    """
    torch.manual_seed(seed)
    with torch.device(_device()):
        model = AsyncTForCausalLM(config).eval()
        tokens = _random_tokens(config)
    _set_parameters(model, tokens, zeros)
    folder.mkdir(parents=True)
    config.architectures = [type(model).__name__]
    config.dtype = dtype
    config.save_pretrained(folder)
    tensors = {
        name: tensor.to(dtype if tensor.dim() > 1 else torch.float32).cpu()
        for name, tensor in model.state_dict().items()
        if not (config.tie_word_embeddings and name.startswith("lm_head"))
    }
    save_file(tensors, folder / WEIGHTS_FILE, metadata={"format": "pt"})


def save_rival(
    config: AsyncTConfig, folder: pathlib.Path, *, dtype: torch.dtype, seed: int
) -> None:
    """Writes a random Qwen3 checkpoint of `config`'s sizes, as transformers initialises it."""
    torch.manual_seed(seed)
    folder.mkdir(parents=True)
    qwen3_shape.write(folder, **{name: getattr(config, name) for name in qwen3_shape.SIZES})
    with torch.device(_device()):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    model.to(dtype).save_pretrained(folder)


@torch.no_grad()
def attention_zeros(folder: pathlib.Path, seed: int) -> float:
    """The share of p that are zero among visible keys, over all layers, on a random prompt."""
    model = AsyncTForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().to(_device())
    torch.manual_seed(seed)
    with torch.device(_device()):
        layers = sparsity(model, _random_tokens(model.config))
    return sum(layer.attention for layer in layers) / len(layers)


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _random_tokens(config: AsyncTConfig) -> torch.Tensor:
    return torch.randint(config.vocab_size, (1, min(_TOKENS, config.max_position_embeddings)))


@torch.no_grad()
def _set_parameters(model: AsyncTForCausalLM, tokens: torch.Tensor, zeros: float) -> None:
    """Runs the model once; every DyHT and every gate is set just before its turn."""
    embedding, norm = model.model.embed_tokens.weight, model.model.norm
    embedding.mul_(_EMBEDDING_DEVIATION / embedding.std())
    hooks = []
    for module in model.modules():
        if isinstance(module, AsyncTAttention):
            hooks.append(module.register_forward_pre_hook(
                lambda module, inputs: _close_gates(module, *inputs[:2], zeros)))
        elif isinstance(module, AsyncTDyHT):
            hooks.append(module.register_forward_pre_hook(_normalise))
    norm.gamma.fill_(1.0)
    logits = model(tokens, use_cache=False).logits
    norm.gamma.fill_(_LOGIT_DEVIATION / logits.std())
    for hook in hooks:
        hook.remove()


def _normalise(dyht: AsyncTDyHT, inputs: tuple[torch.Tensor]) -> None:
    dyht.alpha.fill_(1 / inputs[0].square().mean().sqrt())


def _close_gates(
    attention: AsyncTAttention, hidden_states: torch.Tensor, rotary: tuple, zeros: float
) -> None:
    """Sets alpha, and each head's sigma so that `zeros` of its p are zero: they grow with it."""
    attention.alpha.fill_(_GATE_ALPHA_PER_DIM * attention.head_dim)
    query, key, _ = attention.project(hidden_states, rotary)
    key = key.repeat_interleave(query.shape[2] // key.shape[2], dim=2)
    scores = torch.einsum("bihd,bjhd->bhij", query, key) * attention.gate().score_scale(
        attention.head_dim
    )
    visible = torch.ones_like(scores[0, 0], dtype=torch.bool).tril()
    low, high = torch.zeros_like(attention.sigma), torch.full_like(attention.sigma, _MAX_SIGMA)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        gate = GateParams(middle, attention.alpha, attention.gamma, **attention.gate_settings)
        share = (apply_gate(scores, gate, visible)[..., visible] == 0).float().mean(dim=(0, 2))
        more = share < zeros
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    attention.sigma.copy_((low + high) / 2)
