"""Attention in Triton, for cards and shapes that the CUDA kernels do not take.

Both run on cards of compute capability 8.0 and later, and on the CPU under TRITON_INTERPRET=1.
"""

import importlib.util
import os

import torch

from asynct_kernels.attention.kernel import AttentionKernel, Limits
from asynct_kernels.attention.problem import AttentionProblem, LayerShape

_TILES = 4  # of a segment
_MIN_ROWS = 16  # of a matrix product


class _TritonKernel(AttentionKernel):
    """What the two have in common: limits, and the launch of attend_tiles."""

    def layer_reasons(
        self, layer: LayerShape, capability: tuple[int, int] | None
    ) -> list[str]:
        if importlib.util.find_spec("triton") is None:
            return ["the package triton is not installed"]
        found = super().layer_reasons(layer, capability)
        if layer.head_dim > 256:
            found.append(f"head size D is {layer.head_dim}: must be at most 256")
        if capability is None:
            return found + _cpu_reasons(layer)
        return found + _cuda_reasons(layer, capability)

    def _attend_tiles(self, problem, out, partials, splits: int, rows: int) -> None:
        from asynct_kernels.attention import triton_jit

        gate = problem.gate
        queries = 1 if splits > 1 else rows // problem.group
        blocks = -(-problem.max_query_len // queries)
        # A cache of query's dtype has no scales, and the kernel does not read them.
        k_scale, v_scale = (gate.gamma if scale is None else scale
                            for scale in (problem.k_scale, problem.v_scale))
        triton_jit.attend_tiles[(blocks * splits, problem.kv_heads, problem.requests)](
            problem.query, out, partials, problem.k_cache, problem.v_cache, problem.block_table,
            problem.query_start_loc, problem.seq_lens, gate.sigma, gate.alpha, gate.gamma, k_scale,
            v_scale, gate.score_scale(problem.head_dim), *map(float, gate.clip),
            *problem.query.stride()[:2], *out.stride()[:2], *problem.k_cache.stride()[:3],
            *problem.v_cache.stride()[:3], problem.block_table.stride(0), problem.block_size,
            int(k_scale.numel() > 1), int(v_scale.numel() > 1),
            WEIGHTS=gate.taps, RELU_PRE=gate.relu_pre, GROUP=problem.group,
            HEAD_DIM=problem.head_dim, QUERIES=queries, BLOCK_M=rows, BLOCK_N=_keys(problem),
            BLOCK_D=_block_d(problem), SEGMENT=_segment(problem), SPLITS=splits,
            num_warps=8 if rows > _MIN_ROWS and problem.head_dim > 64 else 4)  # no spills


class TritonDecodeKernel(_TritonKernel):
    """One query a request. Its keys are dealt to `splits` programs a KV head, in segments of
    constant length, whatever the batch; a second kernel adds what they found, in order."""

    name = "triton_decode"
    limits = Limits(window=8, query_len=1)
    tuning = ("splits",)

    def workspace_bytes(self, problem: AttentionProblem) -> int:
        splits = self._splits(problem)
        if splits == 1:
            return 0
        return 4 * problem.requests * splits * problem.heads * problem.head_dim

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        from asynct_kernels.attention import triton_jit

        splits = self._splits(problem)
        partials = workspace[:self.workspace_bytes(problem)].view(torch.float32)
        self._attend_tiles(problem, out, partials, splits, _rows(problem, _MIN_ROWS))
        if splits > 1:
            triton_jit.sum_splits[(problem.heads, problem.requests)](
                out, partials, problem.query_start_loc, problem.seq_lens, *out.stride()[:2],
                HEAD_DIM=problem.head_dim, BLOCK_D=_block_d(problem), SEGMENT=_segment(problem),
                SPLITS=splits)

    @staticmethod
    def _splits(problem: AttentionProblem) -> int:
        return problem.tuning.get("splits", 32)


class TritonPrefillKernel(_TritonKernel):
    """Any number of queries a request, each with its own number of keys."""

    name = "triton_prefill"
    limits = Limits(window=8)

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        self._attend_tiles(problem, out, out, 1, _rows(problem, 64))


def _cuda_reasons(layer: LayerShape, capability: tuple[int, int]) -> list[str]:
    least = (8, 9) if layer.float8_cache else (8, 0)
    if capability >= least:
        return []
    kind = "a float8" if layer.float8_cache else "this"
    return [f"query is on a device of compute capability {capability[0]}.{capability[1]}: "
            f"must be {least[0]}.{least[1]} or later for {kind} cache"]


def _cpu_reasons(layer: LayerShape) -> list[str]:
    if os.environ.get("TRITON_INTERPRET") != "1":
        return ["query is on no CUDA device: must be on one, or TRITON_INTERPRET be 1"]
    if layer.dtype != torch.float16:
        return [f"query has dtype {layer.dtype}: Triton interprets torch.float16 alone"]
    return []


def _rows(problem: AttentionProblem, least: int) -> int:
    return max(least, _power_of_two(problem.group))


def _block_d(problem: AttentionProblem) -> int:
    return max(_MIN_ROWS, _power_of_two(problem.head_dim))


def _keys(problem: AttentionProblem) -> int:
    """Keys of a tile, the overlap with the tile before included."""
    return 64 if problem.head_dim <= 128 else 32


def _segment(problem: AttentionProblem) -> int:
    """Keys of a segment: what its tiles have, their overlaps aside."""
    return _TILES * (_keys(problem) - problem.gate.window + 1)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
