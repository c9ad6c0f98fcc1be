"""The reference among the kernels: float64, request by request, on any device."""

import dataclasses
from collections.abc import Iterator

import torch

from asynct_kernels import reference
from asynct_kernels.attention.kernel import AttentionKernel, Limits
from asynct_kernels.attention.problem import AttentionProblem, FreshKeyValue

# Scores at a time, over all heads: what a chunk holds is a few times as many float64.
_CHUNK_SCORES = 1 << 25


class ReferenceKernel(AttentionKernel):
    """Reads the lengths on the host, so that it cannot be captured."""

    name = "reference"
    limits = Limits(fresh="optional")

    def reasons(self, problem: AttentionProblem) -> list[str]:
        if problem.query.is_cuda and torch.cuda.is_current_stream_capturing():
            return ["a CUDA graph is being captured: it reads the lengths on the host"]
        return super().reasons(problem)

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        if problem.fresh is not None and problem.fresh.norm_rope is not None:
            problem = _normed(problem)
        if problem.fresh is not None and problem.fresh.slot_mapping is not None:
            write_cache(problem, problem.fresh)
        for rows, key, value in request_key_values(problem):
            out[rows] = 0.0
            unseen = max(rows.stop - rows.start - key.shape[0], 0)  # queries before the first key
            for start, stop in _chunks(rows.start + unseen, rows.stop, problem, key.shape[0]):
                seen = key.shape[0] - (rows.stop - stop)
                out[start:stop] = reference.attention(
                    problem.query[start:stop], key[:seen], value[:seen], problem.gate)


def _normed(problem: AttentionProblem) -> AttentionProblem:
    """The problem after its norm_rope."""
    positions = torch.zeros(problem.tokens, dtype=torch.int64, device=problem.device)
    bounds = problem.query_start_loc.tolist()
    for request, length in enumerate(problem.seq_lens.tolist()):
        rows = slice(bounds[request], bounds[request + 1])
        first = length - (rows.stop - rows.start)
        positions[rows] = torch.arange(first, length, device=problem.device).clamp(min=0)
    query, key = reference.qk_norm_rope(
        problem.query, problem.fresh.key, positions, problem.fresh.norm_rope)
    fresh = dataclasses.replace(problem.fresh, key=key, norm_rope=None)
    return dataclasses.replace(problem, query=query, fresh=fresh)


def request_key_values(
    problem: AttentionProblem,
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """For each request its rows of query, and its own keys and values [seq_len, H_kv, D] float64.

    Nothing but the slots of its keys is read.
    """
    bounds = problem.query_start_loc.tolist()
    for request, length in enumerate(problem.seq_lens.tolist()):
        position = torch.arange(length, device=problem.device)
        block = problem.block_table[request, position // problem.block_size].long()
        slot = position % problem.block_size
        yield (slice(bounds[request], bounds[request + 1]),
               _read(problem.k_cache, problem.k_scale, block, slot),
               _read(problem.v_cache, problem.v_scale, block, slot))


def write_cache(problem: AttentionProblem, fresh: FreshKeyValue) -> None:
    """Writes the fresh keys and values to their slots, divided by the scales of a float8 cache."""
    kept = fresh.slot_mapping >= 0
    block = fresh.slot_mapping[kept] // problem.block_size
    slot = fresh.slot_mapping[kept] % problem.block_size
    for cache, values, scale in ((problem.k_cache, fresh.key, problem.k_scale),
                                 (problem.v_cache, fresh.value, problem.v_scale)):
        values = values[kept]
        if scale is not None:
            most = torch.finfo(cache.dtype).max
            values = (values.float() / scale[:, None]).clamp(-most, most)
        _bytes(cache)[block, slot] = _bytes(values.to(cache.dtype))


def _read(
    cache: torch.Tensor, scale: torch.Tensor | None, block: torch.Tensor, slot: torch.Tensor
) -> torch.Tensor:
    values = _bytes(cache)[block, slot].view(cache.dtype).double()
    return values if scale is None else values * scale.double()[:, None]


def _bytes(values: torch.Tensor) -> torch.Tensor:
    """`values` to be indexed, which torch does not do to float8."""
    return values.view(torch.uint8)


def _chunks(
    start: int, stop: int, problem: AttentionProblem, keys: int
) -> Iterator[tuple[int, int]]:
    """Cuts the rows start .. stop - 1 so that a piece has about _CHUNK_SCORES scores or fewer."""
    step = max(1, _CHUNK_SCORES // max(1, problem.heads * keys))
    for begin in range(start, stop, step):
        yield begin, min(begin + step, stop)
