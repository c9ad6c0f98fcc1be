"""AsyncI attention over a paged cache: attend, prepare, explain, workspace_bytes."""

import torch

from asynct_kernels import checks
from asynct_kernels.attention import library
from asynct_kernels.attention.kernel import FRESH_REFUSED, RAW_REFUSED, AttentionKernel
from asynct_kernels.attention.prepared import PreparedCall
from asynct_kernels.attention.problem import FLOAT8, check_bound, check_workspace, read_bounds
from asynct_kernels.attention.registry import find_kernel
from asynct_kernels.gate import GateParams
from asynct_kernels.qk_norm_rope import QkNormRope

_FRESH = {"key", "value", "slot_mapping"}


def attend(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    gate: GateParams,
    *,
    kernel: str,
    out: torch.Tensor | None = None,
    max_query_len: int | None = None,
    max_seq_len: int | None = None,
    workspace: torch.Tensor | None = None,
    k_scale: float | torch.Tensor | None = None,
    v_scale: float | torch.Tensor | None = None,
    key: torch.Tensor | None = None,
    value: torch.Tensor | None = None,
    slot_mapping: torch.Tensor | None = None,
    qk_norm_rope: QkNormRope | None = None,
    **tuning: int,
) -> torch.Tensor:
    """Returns the output of causal AsyncI attention [T, H, D], by the kernel that is named.

    Request r owns the queries query_start_loc[r] .. query_start_loc[r + 1] - 1 and the keys
    0 .. seq_lens[r] - 1; its last query stands at its last key. Key j is in slot j % block_size of
    block block_table[r, j // block_size]. Slots past a request's end, blocks that it does not name
    and table entries past its last block may hold anything and are not used. The lengths and the
    table are read on the device: a captured graph serves any, within the bounds it was captured
    with. Nothing is chosen here, and no other kernel stands in for the one named.

    Args:
        query: [T, H, D] bfloat16 or float16; D adjacent, other strides any.
        k_cache, v_cache: [num_blocks, block_size, H_kv, D] of query's dtype or float8_e4m3fn; D
            adjacent, other strides any (of a KV head's 64-bit offsets). H is a multiple of H_kv.
        block_table: [R, W] int32.
        query_start_loc: [R + 1] int32, from 0 up.
        seq_lens: [R] int32: keys, this step's included; 0 for padding, whose output is zeros.
        gate: sigma, alpha and gamma are floats, or float32 tensors [H] on query's device.
        kernel: one of attention_kernels().
        out: where to write, like query; rows past query_start_loc[R] stay as they are.
        max_query_len, max_seq_len: bounds of a request's queries and keys, for all replays if this
            call is captured. Left out, they are read from the device, which waits for it.
        workspace: uint8, of workspace_bytes(...) or more; allocated if left out. Its contents do
            not matter, and calls on one stream may share it.
        k_scale, v_scale: of a float8 cache, value = scale * stored: a float, or float32 [1] or
            [H_kv]; 1 if left out.
        key, value: [T, H_kv, D] of query's dtype, this step's, for the kernels that read them
            beside the cache.
        slot_mapping: [T] int64, where the kernel writes them: token t to slot
            slot_mapping[t] % block_size of block slot_mapping[t] // block_size, or nowhere if
            negative. None if the cache holds them already.
        qk_norm_rope: for the kernels that do this themselves: query and key are raw, and go through
            it at the positions of their tokens. Then no request may read a key that is in
            another's part of `key`, and key, value and slot_mapping must be given.
        **tuning: the kernel's own keywords.

    Raises:
        TypeError, ValueError: for a bad argument, and for a call that the kernel cannot serve, with
            its reasons.
        RuntimeError: if bounds are left out under capture, or, with CUDA's message, if a launch
            fails.
    """
    found = find_kernel(kernel)
    arguments = _arguments(
        found, query, k_cache, v_cache, block_table, query_start_loc, seq_lens, gate,
        max_query_len=max_query_len, max_seq_len=max_seq_len, k_scale=k_scale, v_scale=v_scale,
        key=key, value=value, slot_mapping=slot_mapping, qk_norm_rope=qk_norm_rope, **tuning)
    if found.limits.fresh == "refused" and arguments.keys() & _FRESH:
        raise ValueError(f"{kernel} cannot serve this call: {FRESH_REFUSED}")
    if qk_norm_rope is not None and not found.limits.takes_raw:
        raise ValueError(f"{kernel} cannot serve this call: {RAW_REFUSED}")
    if out is None:
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
    checks.tensor("out", out)
    if workspace is not None:
        checks.tensor("workspace", workspace)
    getattr(torch.ops.asynct, kernel)(out, workspace, **arguments)
    return out


def prepare(
    block_table: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    kernel: str,
    max_query_len: int | None = None,
    max_seq_len: int | None = None,
    workspace: torch.Tensor | None = None,
    **tuning: int,
) -> PreparedCall:
    """Returns a call of `attend` that only wants a layer's tensors: `launch(query, ...)`.

    For layers that are alike, on one stream: a launch takes a tenth of the host's time that attend
    takes. What is given here is read by every launch, so that it must live, and keep its place.

    Args:
        all: as of attend.

    Raises:
        TypeError, ValueError: for an unknown kernel or keyword; what else is wrong, the first
            launch finds.
    """
    found = find_kernel(kernel)
    if max_query_len is None or max_seq_len is None:
        most = read_bounds(query_start_loc, seq_lens)
        max_query_len = most[0] if max_query_len is None else max_query_len
        max_seq_len = most[1] if max_seq_len is None else max_seq_len
    return PreparedCall(
        found, workspace, block_table=block_table, query_start_loc=query_start_loc,
        seq_lens=seq_lens, max_query_len=max_query_len, max_seq_len=max_seq_len,
        tuning=_checked_tuning(found, tuning))


def explain(
    kernel: str,
    *args,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    **kwargs,
) -> list[str]:
    """The reasons why `kernel` cannot serve attend(*args, **kwargs); empty: it can.

    Raises:
        TypeError, ValueError: for what is wrong with the arguments, whatever the kernel.
    """
    found = find_kernel(kernel)
    problem = library.problem(**_arguments(found, *args, **kwargs))
    reasons = library.reasons(found, problem, out)
    if workspace is not None and not reasons:
        check_workspace(workspace, found.workspace_bytes(problem), problem.device)
    return reasons


def workspace_bytes(kernel: str, *args, **kwargs) -> int:
    """Bytes of workspace that attend(*args, kernel=kernel, **kwargs) needs, if it can be served.

    They depend on shapes, bounds and tuning, not on what the tensors hold.
    """
    found = find_kernel(kernel)
    return found.workspace_bytes(library.problem(**_arguments(found, *args, **kwargs)))


def _arguments(
    kernel: AttentionKernel, query, k_cache, v_cache, block_table, query_start_loc, seq_lens, gate,
    *, max_query_len=None, max_seq_len=None, k_scale=None, v_scale=None, key=None, value=None,
    slot_mapping=None, qk_norm_rope=None, **tuning
) -> dict[str, object]:
    """attend's arguments as those of its operations: no objects but tensors, no floats for them."""
    checks.tensors(query=query, k_cache=k_cache, v_cache=v_cache, block_table=block_table,
                   query_start_loc=query_start_loc, seq_lens=seq_lens)
    if not isinstance(gate, GateParams):
        raise TypeError(f"gate is a {type(gate).__name__}: must be a GateParams")
    if query.dim() != 3:
        raise ValueError(f"query has shape {list(query.shape)}: must be [T, H, D]")
    for name, bound in (("max_query_len", max_query_len), ("max_seq_len", max_seq_len)):
        if bound is not None:
            check_bound(name, bound)
    if k_cache.dtype == FLOAT8:
        k_scale = 1.0 if k_scale is None else k_scale
        v_scale = 1.0 if v_scale is None else v_scale
    arguments = dict(
        query=query, k_cache=k_cache, v_cache=v_cache, block_table=block_table,
        query_start_loc=query_start_loc, seq_lens=seq_lens,
        sigma=_filled("sigma", gate.sigma, query.shape[1], query.device),
        alpha=_filled("alpha", gate.alpha, query.shape[1], query.device),
        gamma=_filled("gamma", gate.gamma, query.shape[1], query.device),
        scale=gate.scale, weights=list(gate.taps), relu_pre=gate.relu_pre, clip_min=gate.clip[0],
        clip_max=gate.clip[1], max_query_len=max_query_len, max_seq_len=max_seq_len,
        k_scale=_filled("k_scale", k_scale, 1, query.device),
        v_scale=_filled("v_scale", v_scale, 1, query.device))
    if not (key is value is slot_mapping is None):
        checks.tensors(key=key, value=value)
        arguments |= dict(key=key, value=value)
    if slot_mapping is not None:
        checks.tensor("slot_mapping", slot_mapping)
        arguments["slot_mapping"] = slot_mapping
    if qk_norm_rope is not None:
        if not isinstance(qk_norm_rope, QkNormRope):
            raise TypeError(f"qk_norm_rope is a {type(qk_norm_rope).__name__}: "
                            "must be a QkNormRope")
        checks.tensors(key=key, value=value, slot_mapping=slot_mapping)
        low, high = qk_norm_rope.clip
        arguments |= qk_norm_rope.tensors() | dict(norm_min=low, norm_max=high)
    return arguments | _checked_tuning(kernel, tuning)


def _filled(
    name: str, value: float | torch.Tensor | None, size: int, device: torch.device
) -> torch.Tensor | None:
    """`value` if it is a tensor or None, else a float32 tensor [size] full of it."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    checks.real(name, value)
    return torch.full((size,), value, dtype=torch.float32, device=device)


def _checked_tuning(kernel: AttentionKernel, tuning: dict[str, object]) -> dict[str, int]:
    for keyword, value in tuning.items():
        if keyword not in kernel.tuning:
            takes = ", ".join(kernel.tuning) or "none"
            raise TypeError(f"{keyword} is no tuning keyword of {kernel.name}: it takes {takes}")
        checks.positive_int(keyword, value)
    return tuning
