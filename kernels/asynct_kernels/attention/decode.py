"""Paged decode on CUDA (csrc/decode): one query a request.

The keys are cut into segments of one length, and the segments of a step are listed on the device:
by the kernel's own first launch, or once for all layers by `schedule_decode`.
"""

from collections.abc import Callable

import torch

from asynct_kernels import _C, checks, cuda
from asynct_kernels.attention import launch
from asynct_kernels.attention.kernel import AttentionKernel, Limits
from asynct_kernels.attention.problem import AttentionProblem, check_bound, check_workspace

_MAX_BLOCKS = 1 << 25  # a block's number and a page's place in it share 32 bits
_MAX_STRIDE = 1 << 32  # bytes from a block to the next
_MAX_SPAN = 1 << 31  # bytes from a block's first slot to its last
_MAX_SEGMENTS = 1 << 31  # of a step
_CHOSEN = 0  # a segment's keys, where the device chooses by the lengths


def schedule_bytes(
    requests: int, *, heads: int, kv_heads: int, head_dim: int, max_seq_len: int,
    segment_keys: int | None = None
) -> int:
    """Bytes of workspace that `schedule_decode` and the calls after it need."""
    return _C.decode_workspace_bytes(_C.DecodeShape(
        requests=requests, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        max_seq_len=max_seq_len, segment_keys=segment_keys or _CHOSEN))


def schedule_decode(*args, **kwargs) -> None:
    """Launches what `prepare_schedule(*args, **kwargs)` returns."""
    prepare_schedule(*args, **kwargs)()


def prepare_schedule(
    workspace: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    max_seq_len: int,
    segment_keys: int | None = None,
) -> Callable[[], None]:
    """Returns the launch that lists a step's segments in `workspace`, for calls of hp1_decode_paged
    with scheduled=1; it may be called for any number of steps, on any stream of the device.

    Every such call names this workspace, has these requests, shapes, max_seq_len and segment_keys,
    and comes later on the same stream. The list stays good until the workspace is written by
    anything else.

    Args:
        workspace: uint8, as much as asynct_kernels.workspace_bytes says of such a call; it may hold
            anything before.
        query_start_loc, seq_lens: as of asynct_kernels.attend; read on the device.
        segment_keys: as of such a call.

    Raises:
        TypeError, ValueError: for a bad argument.
        RuntimeError: with CUDA's message, if the launch fails.
    """
    checks.tensors(workspace=workspace, query_start_loc=query_start_loc, seq_lens=seq_lens)
    for name, tensor in (("seq_lens", seq_lens), ("query_start_loc", query_start_loc)):
        checks.dtype(name, tensor, (torch.int32,))
        if tensor.dim() != 1 or not tensor.is_contiguous():
            raise ValueError(f"{name} has shape {list(tensor.shape)} and strides "
                             f"{list(tensor.stride())}: must be a contiguous vector")
        checks.same_device(name, tensor, "workspace", workspace)
    requests = seq_lens.shape[0]
    checks.shape("query_start_loc", query_start_loc, [(requests + 1,)])
    for name, value in (("heads", heads), ("kv_heads", kv_heads), ("head_dim", head_dim)):
        checks.positive_int(name, value)
    if segment_keys is not None:
        checks.positive_int("segment_keys", segment_keys)
    check_bound("max_seq_len", max_seq_len)
    checks.grouped_heads(heads, kv_heads)
    if why := _segment_reasons(requests, max_seq_len, segment_keys):
        raise ValueError("; ".join(why))
    shape = _C.DecodeShape(
        requests=requests, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        max_seq_len=max_seq_len, segment_keys=segment_keys or _CHOSEN)
    check_workspace(workspace, _C.decode_workspace_bytes(shape), workspace.device)

    def launch() -> None:
        with torch.cuda.device(workspace.device):
            _C.hp1_decode_schedule(
                query_start_loc=query_start_loc.data_ptr(), seq_lens=seq_lens.data_ptr(),
                shape=shape, workspace=workspace.data_ptr(), stream=cuda.current_stream(workspace))

    return launch


class DecodePagedKernel(AttentionKernel):
    """Reads K once, and V only where some head's p is not zero.

    With qk_norm_rope, which its one launch does too, a query stands at position seq_lens[r] - 1.

    Tuning:
        segment_keys: keys of a segment, a multiple of 16. Left out, the device chooses by all
            lengths of the step: then a request's sums, and so its last bits, depend on its batch.
        scheduled: 1 if schedule_decode has filled the workspace.
    """

    name = "hp1_decode_paged"
    limits = Limits(capability=((8, 0), None), head_dims=(64, 128, 256),
                    block_sizes=tuple(range(16, 1025, 16)), window=8, query_len=1, alignment=16,
                    fresh="raw")
    tuning = ("segment_keys", "scheduled")

    def reasons(self, problem: AttentionProblem) -> list[str]:
        found = super().reasons(problem)
        found += _segment_reasons(problem.requests, problem.max_seq_len,
                                  problem.tuning.get("segment_keys"))
        if problem.tuning.get("scheduled", 1) != 1:
            found.append(f"scheduled is {problem.tuning['scheduled']}: must be 1, or left out")
        for name, cache in (("k_cache", problem.k_cache), ("v_cache", problem.v_cache)):
            if cache.shape[0] > _MAX_BLOCKS:
                found.append(f"{name} has {cache.shape[0]} blocks: must be at most {_MAX_BLOCKS}")
            stride = cache.stride(0) * cache.element_size()
            if stride >= _MAX_STRIDE:
                found.append(f"{name} has a stride of {stride} bytes between blocks: "
                             f"must be less than {_MAX_STRIDE}")
            span = cache.stride(1) * cache.shape[1] * cache.element_size()
            if span >= _MAX_SPAN:
                found.append(f"{name} has blocks of {span} bytes: must be less than {_MAX_SPAN}")
        return found

    def needs_workspace(self, problem: AttentionProblem) -> bool:
        return "scheduled" in problem.tuning

    def workspace_bytes(self, problem: AttentionProblem) -> int:
        return _C.decode_workspace_bytes(_shape(problem))

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        shape, stream = _shape(problem), launch.stream(problem)
        if "scheduled" not in problem.tuning:
            _C.hp1_decode_schedule(
                query_start_loc=problem.query_start_loc.data_ptr(),
                seq_lens=problem.seq_lens.data_ptr(), shape=shape,
                workspace=workspace.data_ptr(), stream=stream)
        raw = None if problem.fresh is None else launch.raw_step(problem.fresh)
        _C.hp1_decode_paged(params=launch.attention_params(problem, out), raw=raw, shape=shape,
                            workspace=workspace.data_ptr(), stream=stream)


def _segment_reasons(requests: int, max_seq_len: int, keys: int | None) -> list[str]:
    found = []
    if keys is None:
        keys = _C.DECODE_MAX_SEGMENT_KEYS
    elif keys % _C.DECODE_PAGE_KEYS or keys > _C.DECODE_MAX_SEGMENT_KEYS:
        found.append(f"segment_keys is {keys}: must be a multiple of {_C.DECODE_PAGE_KEYS}, "
                     f"at most {_C.DECODE_MAX_SEGMENT_KEYS}")
    segments = -(-max_seq_len // keys)
    if segments > _C.DECODE_MAX_SEGMENTS or requests * segments >= _MAX_SEGMENTS:
        found.append(f"max_seq_len is {max_seq_len}, {segments} segments for each of {requests} "
                     f"requests: must be at most {_C.DECODE_MAX_SEGMENTS} segments, and less than "
                     f"{_MAX_SEGMENTS} in all")
    return found


def _shape(problem: AttentionProblem) -> _C.DecodeShape:
    return _C.DecodeShape(
        requests=problem.requests, heads=problem.heads, kv_heads=problem.kv_heads,
        head_dim=problem.head_dim, max_seq_len=problem.max_seq_len,
        segment_keys=problem.tuning.get("segment_keys", _CHOSEN))
