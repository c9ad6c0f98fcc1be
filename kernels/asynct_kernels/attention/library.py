"""Registration of the kernels with torch.library: torch.ops.asynct.<kernel>, mutating `out`.

The fake implementations check the arguments; the real ones also ask the kernel whether it can serve
them, and run it.
"""

import contextlib

import torch

from asynct_kernels.attention.kernel import AttentionKernel, misaligned
from asynct_kernels.attention.problem import (
    AttentionProblem,
    FreshKeyValue,
    check_out,
    check_workspace,
    read_bounds,
)
from asynct_kernels.gate import GateParams
from asynct_kernels.library import LIBRARY
from asynct_kernels.qk_norm_rope import QkNormRope


def register(kernel: AttentionKernel) -> None:
    """Defines torch.ops.asynct.<kernel.name>; its keywords are those of `problem`."""

    def fake(out, workspace, *args, **kwargs):
        check_out(out, _problem(*args, **kwargs, read=False))

    def real(out, workspace, *args, **kwargs):
        asked = problem(*args, **kwargs)
        launch(kernel, asked, out, checked_workspace(kernel, asked, out, workspace))

    LIBRARY.define(_schema(kernel), tags=torch.Tag.pt2_compliant_tag)
    for device in ("CPU", "CUDA"):
        LIBRARY.impl(kernel.name, real, device)
    torch.library.register_fake(f"asynct::{kernel.name}", fake, lib=LIBRARY)


def _schema(kernel: AttentionKernel) -> str:
    writes_cache = kernel.limits.fresh != "refused"
    k_cache, v_cache = ("(c!)", "(d!)") if writes_cache else ("", "")
    arguments = [
        "Tensor(a!) out", "Tensor(b!)? workspace", "Tensor query", f"Tensor{k_cache} k_cache",
        f"Tensor{v_cache} v_cache", "Tensor block_table", "Tensor query_start_loc",
        "Tensor seq_lens", "Tensor sigma", "Tensor alpha", "Tensor gamma", "float? scale",
        "float[] weights", "bool relu_pre", "float clip_min", "float clip_max",
        "*",  # not all kernels have all that follows: they go by name
        "SymInt? max_query_len=None", "SymInt? max_seq_len=None", "Tensor? k_scale=None",
        "Tensor? v_scale=None"]
    if writes_cache:
        arguments += ["Tensor? key=None", "Tensor? value=None", "Tensor? slot_mapping=None"]
    if kernel.limits.takes_raw:
        arguments += ["Tensor? q_alpha=None", "Tensor? q_gamma=None", "Tensor? k_alpha=None",
                      "Tensor? k_gamma=None", "float? norm_min=None", "float? norm_max=None",
                      "Tensor? cos_sin=None"]
    arguments += [f"int? {keyword}=None" for keyword in kernel.tuning]
    return f"{kernel.name}({', '.join(arguments)}) -> ()"


def problem(*args, **kwargs) -> AttentionProblem:
    """The arguments of an operation, `out` and `workspace` aside, checked."""
    return _problem(*args, **kwargs, read=True)


def _problem(
    query, k_cache, v_cache, block_table, query_start_loc, seq_lens, sigma, alpha, gamma, scale,
    weights, relu_pre, clip_min, clip_max, *, read, max_query_len=None, max_seq_len=None,
    k_scale=None, v_scale=None, key=None, value=None, slot_mapping=None, q_alpha=None,
    q_gamma=None, k_alpha=None, k_gamma=None, norm_min=None, norm_max=None, cos_sin=None, **tuning
) -> AttentionProblem:
    if max_query_len is None or max_seq_len is None:
        # A fake tensor has nothing to read: what the shapes allow, which nothing depends on there.
        most = read_bounds(query_start_loc, seq_lens) if read else (query.shape[0], 0)
        max_query_len = most[0] if max_query_len is None else max_query_len
        max_seq_len = most[1] if max_seq_len is None else max_seq_len
    fresh = norm_rope = None
    if cos_sin is not None:
        norm_rope = QkNormRope(q_alpha=q_alpha, q_gamma=q_gamma, k_alpha=k_alpha, k_gamma=k_gamma,
                               clip=(norm_min, norm_max), cos_sin=cos_sin)
    if key is not None:
        fresh = FreshKeyValue(key=key, value=value, slot_mapping=slot_mapping, norm_rope=norm_rope)
    asked = AttentionProblem(
        query=query, k_cache=k_cache, v_cache=v_cache, block_table=block_table,
        query_start_loc=query_start_loc, seq_lens=seq_lens,
        gate=GateParams(sigma, alpha, gamma, scale, len(weights), weights, relu_pre,
                        (clip_min, clip_max)),
        max_query_len=max_query_len, max_seq_len=max_seq_len, k_scale=k_scale, v_scale=v_scale,
        fresh=fresh, tuning={k: v for k, v in tuning.items() if v is not None})
    asked.check()
    return asked


def reasons(
    kernel: AttentionKernel, problem: AttentionProblem, out: torch.Tensor | None
) -> list[str]:
    """Why the kernel cannot serve the problem, or not write to `out`; empty: it can."""
    found = kernel.reasons(problem)
    if out is not None:
        check_out(out, problem)
        found += misaligned("out", out, kernel.limits.alignment)
    return found


def checked_workspace(
    kernel: AttentionKernel,
    problem: AttentionProblem,
    out: torch.Tensor,
    workspace: torch.Tensor | None,
) -> torch.Tensor:
    """The workspace of a launch: the one given, or a new one.

    Raises:
        TypeError, ValueError: for an `out` or a workspace that will not do, and for a problem that
            the kernel cannot serve, with its reasons.
    """
    if why := reasons(kernel, problem, out):
        raise ValueError(f"{kernel.name} cannot serve this call: {'; '.join(why)}")
    least = kernel.workspace_bytes(problem)
    if workspace is not None:
        check_workspace(workspace, least, problem.device)
    elif kernel.needs_workspace(problem):
        raise ValueError("workspace is None: must be given, as the call takes what is in it")
    else:
        workspace = torch.empty(least, dtype=torch.uint8, device=problem.device)
    return workspace


def launch(
    kernel: AttentionKernel, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor
) -> None:
    """Enqueues what has been checked, if there is anything to do."""
    if not problem.requests or not problem.tokens or not problem.max_query_len:
        return
    on_cuda = problem.device.type == "cuda"
    with torch.cuda.device(problem.device) if on_cuda else contextlib.nullcontext():
        kernel.run(problem, out, workspace)
