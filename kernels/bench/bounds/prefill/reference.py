"""What a variant computes, row by row, in float64 or step for step in its own precision."""

import torch

from skeleton import HEAD_DIM, Inputs


def probabilities(scores: torch.Tensor, inputs: Inputs, gated: bool) -> torch.Tensor:
    """p of raw scores [heads, rows, keys] = q . k; without the gate p is the score itself."""
    if not gated:
        return scores
    sigma, alpha = (x.to(scores.dtype).view(-1, 1, 1) for x in (inputs.sigma, inputs.alpha))
    s = inputs.scale * scores
    r = s.clamp_min(0)
    window = r.clone()
    window[..., 1:] += r[..., :-1]
    window[..., 2:] += r[..., :-2]
    return (alpha * (s - sigma / 3 * window)).clamp(0, 1)


def attention_rows(inputs: Inputs, request: int, rows: torch.Tensor, gated: bool,
                   dtype: torch.dtype) -> torch.Tensor:
    """Output rows [rows, heads, 128] of one request.

    In float64 nothing is rounded on the way; in float32 p and the output are rounded to bf16, as
    the kernel does.
    """
    group = inputs.heads // inputs.kv_heads
    tokens = slice(request * inputs.length, (request + 1) * inputs.length)
    query = inputs.query[tokens][rows].to(dtype).transpose(0, 1)
    key, value = (x[tokens].to(dtype).repeat_interleave(group, 1).transpose(0, 1)
                  for x in (inputs.key, inputs.value))
    p = probabilities(query @ key.transpose(1, 2), inputs, gated)
    p = p.masked_fill(torch.arange(inputs.length, device=rows.device) > rows[:, None], 0)
    if dtype == torch.float32:
        p = p.to(torch.bfloat16).to(dtype)
    out = (p @ value).transpose(0, 1)
    if gated:
        out = out * inputs.gamma.to(dtype)[:, None]
    return out.to(torch.bfloat16).to(dtype) if dtype == torch.float32 else out


def errors(inputs: Inputs, out: torch.Tensor, request: int, rows: torch.Tensor,
           gated: bool) -> tuple[float, float, float]:
    """(error of `out`, error of the same arithmetic in torch, worst ratio of largest errors).

    The first two are ||x - reference|| / ||reference|| over the rows, against float64.
    """
    exact = attention_rows(inputs, request, rows, gated, torch.float64)
    same = attention_rows(inputs, request, rows, gated, torch.float32).double()
    got = out.view(inputs.batch, inputs.length, inputs.heads, HEAD_DIM)[request][rows].double()
    norm = exact.norm()
    largest = (got - exact).abs().max() / ((same - exact).abs().max() + 1e-6 * exact.abs().max())
    return tuple(float(x) for x in ((got - exact).norm() / norm, (same - exact).norm() / norm,
                                    largest))


def is_right(found: tuple[float, float, float]) -> bool:
    """An error at most twice that of the same arithmetic in torch; NaN is wrong."""
    error, same, largest = found
    return error <= 2 * same + 1e-6 and largest <= 4
