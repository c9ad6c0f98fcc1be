"""What a call must give: float64, and the error that the precision of the kernels allows."""

import dataclasses
import functools
from collections.abc import Iterator

import torch

from asynct_kernels import apply_gate
from asynct_kernels.reference import attention
from problems import Call, Case, as_bytes

CHUNK_SCORES = 1 << 26


@dataclasses.dataclass(frozen=True, eq=False)
class Truth:
    """A call with its output [T, H, D] in float64, and in PyTorch at the kernels' precision:
    scores and gate in float32, p rounded to the query's dtype, float32 sums, one rounding."""

    call: Call
    exact: torch.Tensor
    plain: torch.Tensor


@functools.lru_cache(maxsize=1)
def truth(case: Case, device: str, seed: int) -> Truth:
    """The case's data and outputs; kept until the next case, for all kernels."""
    torch.manual_seed(seed)
    call = case.make(device)
    exact = torch.zeros(call.query.shape, dtype=torch.float64, device=device)
    plain = torch.zeros_like(call.query)
    for rows, query, key, value in requests(call):
        exact[rows] = _exact(call, query, key, value)
        plain[rows] = _plain(call, query, key, value)
    return Truth(call, exact[:call.tokens], plain[:call.tokens])


def requests(call: Call) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(rows, query, key, value) of pieces of requests: the queries are the last of the keys.

    Keys and values are as the cache stores them, [n, H_kv, D]. Queries that stand before the first
    key are left out.
    """
    case, start = call.case, 0
    for request, (queries, keys) in enumerate(zip(case.query_lens, case.seq_lens)):
        position = torch.arange(keys, device=call.query.device)
        block = call.block_table[request, position // case.block_size].long()
        slot = position % case.block_size
        key, value = (as_bytes(cache)[block, slot].view(cache.dtype)
                      for cache in (call.k_cache, call.v_cache))
        first = max(0, queries - keys)
        step = max(1, CHUNK_SCORES // max(1, keys * case.heads))
        for begin in range(first, queries, step):
            end = min(begin + step, queries)
            seen = keys - (queries - end)
            rows = slice(start + begin, start + end)
            yield rows, call.query[rows], key[:seen], value[:seen]
        start += queries


def _exact(call: Call, query, key, value) -> torch.Tensor:
    key, value = key.double(), value.double()
    if call.case.float8:
        key, value = key * call.k_scale.double()[:, None], value * call.v_scale.double()[:, None]
    return attention(query, key, value, call.gate)


def _plain(call: Call, query, key, value) -> torch.Tensor:
    group = call.case.heads // call.case.kv_heads
    rows = query.float().unflatten(1, (-1, group)).permute(1, 2, 0, 3)  # [H_kv, group, n, D]
    scores = (rows.flatten(1, 2) @ key.float().permute(1, 2, 0)).unflatten(1, (group, -1))
    scores *= call.gate.score_scale(call.case.head_dim)
    if call.case.float8:
        scores *= call.k_scale[:, None, None, None]
    visible = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device)
    visible = visible.tril(scores.shape[3] - scores.shape[2])
    p = apply_gate(scores.flatten(0, 1), dataclasses.replace(call.gate, gamma=1.0), visible)
    p = p.to(query.dtype).float().view(scores.shape).flatten(1, 2)
    output = (p @ value.float().transpose(0, 1)).unflatten(1, (group, -1))
    if call.case.float8:
        output *= call.v_scale[:, None, None, None]
    output = output.flatten(0, 1).transpose(0, 1)  # [n, H, D]
    gamma = torch.as_tensor(call.gate.gamma, dtype=torch.float32, device=output.device)
    return (output * gamma.expand(call.case.heads)[:, None]).to(query.dtype)


def assert_accurate(output: torch.Tensor, truth: Truth) -> None:
    """Asserts that the error of `output` is at most twice that of `truth.plain`, over all of it.

    Every head of a query is looked at too, so that a long request does not hide a short one; a
    single one may be lucky in `plain`, so twice its own rounding is allowed besides.
    """
    output = output[:truth.exact.shape[0]].double()
    assert output.isfinite().all(), "not finite"
    error, allowed = (output - truth.exact).abs(), (truth.plain.double() - truth.exact).abs()
    rounding = torch.finfo(truth.plain.dtype).eps * truth.exact.norm(dim=-1)
    rows, rows_allowed = error.norm(dim=-1), 2 * allowed.norm(dim=-1) + 2 * rounding + 1e-5
    worst = (rows / rows_allowed).argmax() if rows.numel() else None
    if worst is not None:
        token, head = divmod(int(worst), rows.shape[1])
        assert (rows <= rows_allowed).all(), (
            f"token {token} head {head}: error {rows[token, head]:.3g}, "
            f"allowed {rows_allowed[token, head]:.3g}")
    few = rounding.norm() if rows.numel() <= 16 else 0.0
    assert error.norm() <= 2 * allowed.norm() + few, (
        f"error {error.norm():.3g}, PyTorch's {allowed.norm():.3g}")
