"""AsyncI attention over keys and values that lie in plain tensors."""

import torch

from asynct_kernels import checks
from asynct_kernels.gate import GateParams, apply_gate


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    gate: GateParams,
    *,
    visible: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Returns the output of AsyncI attention, computed in `dtype`; differentiable.

    Args:
        query: [..., T_q, H, D].
        key: [..., T_k, H_kv, D], H a multiple of H_kv; query head h reads h // (H / H_kv).
        value: [..., T_k, H_kv, D].
        gate: the parameters; their scale defaults to 1 / D.
        visible: bool [..., T_q, T_k], whether the query may see the key. By default the attention
            is causal and the T_q queries are the last of T_k positions. Rows of key and value that
            no query may see can hold anything, NaN and infinities included.
        dtype: the floating-point dtype to compute in and to return.

    Returns:
        [..., T_q, H, D] in `dtype`; zeros for a query that sees no key.

    Raises:
        TypeError, ValueError: for an argument of the wrong type or shape.
    """
    _check(query, key, value, visible)
    num_queries, num_heads, head_size = query.shape[-3:]
    num_keys, num_kv_heads, _ = key.shape[-3:]
    group = num_heads // num_kv_heads
    query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    if visible is None:
        visible = torch.ones(num_queries, num_keys, dtype=torch.bool, device=query.device)
        visible = visible.tril(num_keys - num_queries)
    else:
        # Unseen rows become zeros before a product: 0 * NaN is NaN. Unseen scores are the gate's to
        # mask, so that unseen keys meet a zero only in the query's gradient.
        seen = visible.any(dim=-2)[..., None, None]
        value = torch.where(seen, value, 0.0)
        if torch.is_grad_enabled():
            key = torch.where(seen, key, 0.0)

    # One product a KV head reads keys and values where they lie; its query heads are its rows.
    rows = (query * gate.score_scale(head_size)).unflatten(-2, (num_kv_heads, group)).movedim(-4, -2)
    scores = [
        head.flatten(-3, -2) @ keys.mT
        for head, keys in zip(rows.unbind(-4), key.unbind(-2), strict=True)
    ]
    weights = apply_gate(
        torch.stack(scores, dim=-3).unflatten(-2, (group, num_queries)).flatten(-4, -3),
        gate,
        visible.unsqueeze(-3),
    ).unflatten(-3, (num_kv_heads, group))
    output = [
        head.flatten(-3, -2) @ values
        for head, values in zip(weights.unbind(-4), value.unbind(-2), strict=True)
    ]
    output = torch.stack(output, dim=-3).unflatten(-2, (group, num_queries))
    return output.flatten(-4, -3).movedim(-3, -2)


def _check(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor | None
) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        checks.floating(name, tensor)
        if tensor.dim() < 3:
            raise ValueError(f"{name} has shape {list(tensor.shape)}: must be [..., T, heads, D]")
    num_queries, num_heads, head_size = query.shape[-3:]
    num_keys, num_kv_heads, _ = key.shape[-3:]
    checks.shape("key", key, [(*query.shape[:-3], num_keys, num_kv_heads, head_size)])
    checks.shape("value", value, [tuple(key.shape)])
    checks.grouped_heads(num_heads, num_kv_heads)
    if visible is None:
        if num_keys < num_queries:
            raise ValueError(f"key has {num_keys} rows: causal attention of {num_queries} queries "
                             "needs at least as many")
        return
    checks.tensor("visible", visible)
    checks.dtype("visible", visible, [torch.bool])
    if visible.dim() < 2 or tuple(visible.shape[-2:]) != (num_queries, num_keys):
        raise ValueError(f"visible has shape {list(visible.shape)}: "
                         f"must be [..., {num_queries}, {num_keys}]")
