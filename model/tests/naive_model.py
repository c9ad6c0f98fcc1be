"""AsyncT computed one token and one head at a time in float64, straight from the specification."""

import torch
from asynct_model import AsyncTConfig


def naive_logits(
    config: AsyncTConfig, tensors: dict[str, torch.Tensor], tokens: list[int]
) -> torch.Tensor:
    """Logits [T, vocabulary] of one sequence."""
    weights = {name: tensor.double() for name, tensor in tensors.items()}
    embedding = weights["model.embed_tokens.weight"]
    hidden = [embedding[token] for token in tokens]
    for index in range(config.num_hidden_layers):
        prefix = f"model.layers.{index}."
        layer = {
            name.removeprefix(prefix): tensor
            for name, tensor in weights.items()
            if name.startswith(prefix)
        }
        hidden = _layer(config, layer, hidden)
    head = embedding if config.tie_word_embeddings else weights["lm_head.weight"]
    final = {name.removeprefix("model."): weights[name] for name in weights if "model.norm" in name}
    return torch.stack([head @ _dyht(config, final, "norm", h) for h in hidden])


def _layer(config, layer, hidden):
    heads, size = config.num_attention_heads, config.head_dim
    group = heads // config.num_key_value_heads
    queries, keys, values = [], [], []  # per token: [heads, D]
    for position, h in enumerate(hidden):
        x = _dyht(config, layer, "input_layernorm", h)
        q, k, v = ((layer[f"self_attn.{name}_proj.weight"] @ x).view(-1, size) for name in "qkv")
        queries.append(_rope(config, _dyht(config, layer, "self_attn.q_norm", q), position))
        keys.append(_rope(config, _dyht(config, layer, "self_attn.k_norm", k), position))
        values.append(v)
    result = []
    for i, h in enumerate(hidden):
        output = torch.stack(
            [
                _attend(
                    config,
                    [layer[f"self_attn.{name}"][head] for name in ("sigma", "alpha", "gamma")],
                    queries[i][head],
                    [key[head // group] for key in keys[: i + 1]],
                    [value[head // group] for value in values[: i + 1]],
                )
                for head in range(heads)
            ]
        )
        x = layer["self_attn.o_proj.weight"] @ output.flatten()
        h = h + _dyht(config, layer, "post_attn_layernorm", x)
        x = _dyht(config, layer, "pre_mlp_layernorm", h)
        inner = (layer["mlp.gate_proj.weight"] @ x).clamp(min=0) * (layer["mlp.up_proj.weight"] @ x)
        result.append(h + layer["mlp.down_proj.weight"] @ inner)
    return result


def _attend(config, gate, query, keys, values):
    sigma, alpha, gamma = gate
    window = config.attention_window
    weights = config.attention_weights or [1 / window] * window
    scale = 1 / config.head_dim if config.attention_scale is None else config.attention_scale
    s = [scale * torch.dot(query, key) for key in keys]
    r = [max(x, torch.zeros_like(x)) if config.attention_relu_pre else x for x in s]
    output = torch.zeros_like(query)
    for j, value in enumerate(values):
        average = sum(weights[m] * r[j - m] for m in range(window) if j - m >= 0)
        clamped = (alpha * (s[j] - sigma * average)).clamp(*config.attention_clip)
        output = output + gamma * clamped * value
    return output


def _dyht(config, tensors, name, x):
    return tensors[f"{name}.gamma"] * (tensors[f"{name}.alpha"] * x).clamp(*config.dyht_clip)


def _rope(config, x, position):
    half = config.head_dim // 2
    theta = config.rope_parameters["rope_theta"]
    angle = position * theta ** (-torch.arange(half, dtype=torch.float64) / half)
    first, second = x[:, :half], x[:, half:]
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1
    )
