"""Prefill on Hopper by wgmma (csrc/prefill/wgmma*): over pages, or over contiguous keys and values.

One attention kernel, three ways to feed it: pages by cp.async, contiguous keys and values by the
copy engine. All first launch a small kernel that lists the row blocks of the batch, so that nothing
but the bounds is needed on the host.
"""

import torch

from asynct_kernels import _C, cuda
from asynct_kernels.attention import launch
from asynct_kernels.attention.cache import write_fresh
from asynct_kernels.attention.kernel import AttentionKernel, Limits
from asynct_kernels.attention.problem import AttentionProblem

_LIMITS = dict(capability=((9, 0), (9, 0)), head_dims=(64, 128, 256), window=8, alignment=16)
_MAX_ROWS = 1 << 31
_L2_LINE = 128  # bytes


class PrefillWgmmaKernel(AttentionKernel):
    """Over pages, with any prefix."""

    name = "hp1_prefill_wgmma"
    limits = Limits(block_sizes=tuple(range(16, 129, 16)), **_LIMITS)

    def reasons(self, problem: AttentionProblem) -> list[str]:
        return super().reasons(problem) + _too_many_requests(problem)

    def workspace_bytes(self, problem: AttentionProblem) -> int:
        return _schedule_bytes(problem)

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        _attend(problem, out, workspace)


class PrefillSuperPageKernel(AttentionKernel):
    """Fresh prompts: attends to this step's keys and values as they are, and writes them to the
    cache if slot_mapping says where."""

    name = "hp1_prefill_super_page"
    limits = Limits(float8=False, fresh="required", **_LIMITS)

    def reasons(self, problem: AttentionProblem) -> list[str]:
        found = super().reasons(problem) + _too_many_requests(problem)
        if problem.max_seq_len > problem.max_query_len:
            found.append(f"max_seq_len is {problem.max_seq_len} and max_query_len "
                         f"{problem.max_query_len}: must be the same, of prompts without a prefix")
        return found

    def workspace_bytes(self, problem: AttentionProblem) -> int:
        return _schedule_bytes(problem)

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        if problem.fresh.slot_mapping is not None:
            write_fresh(problem.fresh, problem)
        _attend(problem, out, workspace, _C.KeyValueRows(
            key=cuda.heads_view(problem.fresh.key), value=cuda.heads_view(problem.fresh.value),
            rows=problem.tokens, request_rows=0))


class PrefillGatherKernel(AttentionKernel):
    """Copies each request's pages to the workspace, max_seq_len rows for each, and attends to the
    copies."""

    name = "hp1_prefill_gather"
    limits = Limits(**_LIMITS)

    def reasons(self, problem: AttentionProblem) -> list[str]:
        found = super().reasons(problem) + _too_many_requests(problem)
        rows = problem.requests * problem.max_seq_len
        if rows >= _MAX_ROWS:
            found.append(f"there are {problem.requests} requests of up to {problem.max_seq_len} "
                         f"keys, {rows} together: must be less than {_MAX_ROWS}")
        return found

    def workspace_bytes(self, problem: AttentionProblem) -> int:
        return _copies_offset(problem) + 2 * _copy_bytes(problem)

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        key = workspace.data_ptr() + _copies_offset(problem)
        value = key + _copy_bytes(problem)
        _C.gather_pages(params=launch.attention_params(problem, out), key=key, value=value,
                        request_rows=problem.max_seq_len, row_multiple=1,
                        stream=launch.stream(problem))
        row, head = problem.kv_heads * problem.head_dim, problem.head_dim
        _attend(problem, out, workspace, _C.KeyValueRows(
            key=_C.HeadsView(key, row, head), value=_C.HeadsView(value, row, head),
            rows=problem.requests * problem.max_seq_len, request_rows=problem.max_seq_len))


def _attend(
    problem: AttentionProblem,
    out: torch.Tensor,
    workspace: torch.Tensor,
    rows: _C.KeyValueRows | None = None,
) -> None:
    _C.hp1_prefill_wgmma(params=launch.attention_params(problem, out), rows=rows,
                         tokens=problem.tokens, workspace=workspace.data_ptr(),
                         stream=launch.stream(problem))


def _too_many_requests(problem: AttentionProblem) -> list[str]:
    most = _C.PREFILL_WGMMA_MAX_REQUESTS
    if problem.requests <= most:
        return []
    return [f"seq_lens has {problem.requests} requests: must have at most {most}"]


def _schedule_bytes(problem: AttentionProblem) -> int:
    return _C.prefill_wgmma_workspace_bytes(
        tokens=problem.tokens, requests=problem.requests, group=problem.group)


def _copies_offset(problem: AttentionProblem) -> int:
    """Where the copies begin in the workspace: behind the schedule, at a line of the L2, which rows
    that straddle two would read twice."""
    return -(-_schedule_bytes(problem) // _L2_LINE) * _L2_LINE


def _copy_bytes(problem: AttentionProblem) -> int:
    """Bytes of the gathered keys, or of the values."""
    rows = problem.requests * problem.max_seq_len
    return rows * problem.kv_heads * problem.head_dim * problem.query.element_size()
