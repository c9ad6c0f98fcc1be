"""What a call of attention is asked for, and its checks, which come before any launch."""

import dataclasses
from collections.abc import Mapping

import torch

from asynct_kernels import checks
from asynct_kernels.gate import GateParams
from asynct_kernels.qk_norm_rope import QkNormRope

QUERY_DTYPES = (torch.bfloat16, torch.float16)
FLOAT8 = torch.float8_e4m3fn


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerShape:
    """What all calls for the attention layers of a model have in common.

    Attributes:
        dtype: of query.
        head_dim: D.
        group: query heads a KV head, H / H_kv.
        block_size: keys of a cache block.
        window: of the gate.
        float8_cache: whether the cache is float8_e4m3fn.
    """

    dtype: torch.dtype
    head_dim: int
    group: int
    block_size: int
    window: int
    float8_cache: bool


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FreshKeyValue:
    """The step's keys and values [T, H_kv, D] as the projection wrote them, and the cache's slots
    that they go to: slot_mapping [T] int64, block * block_size + slot, or -1 for none; None if the
    cache holds them already. With norm_rope the keys, and the call's queries, are still to go
    through that, at their positions."""

    key: torch.Tensor
    value: torch.Tensor
    slot_mapping: torch.Tensor | None
    norm_rope: QkNormRope | None = None


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class AttentionProblem:
    """The arguments of one call.

    Request r owns the queries query_start_loc[r] .. query_start_loc[r + 1] - 1 and the keys
    0 .. seq_lens[r] - 1; its last query stands at its last key. Key j is in slot j % block_size of
    block block_table[r, j // block_size].

    Attributes:
        query: [T, H, D] bfloat16 or float16, D adjacent, any other strides.
        k_cache, v_cache: [num_blocks, block_size, H_kv, D] of query's dtype or float8_e4m3fn,
            D adjacent, any other strides.
        block_table: [R, W] int32, a row's entries adjacent.
        query_start_loc: [R + 1] int32.
        seq_lens: [R] int32.
        gate: sigma, alpha, gamma are tensors [H] float32; the scale is given.
        max_query_len, max_seq_len: no request has more queries or keys: in this launch, or in any
            replay of a captured one.
        k_scale, v_scale: float32 [1] or [H_kv] factors of a float8 cache; None for other caches.
        fresh: for the kernels that read this step's keys and values beside the cache.
        tuning: the kernel's own keywords.
    """

    query: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    gate: GateParams
    max_query_len: int
    max_seq_len: int
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    fresh: FreshKeyValue | None = None
    tuning: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Checks everything on the host; the device is not read.

        Raises:
            TypeError, ValueError: for a wrong type, shape, stride, range or device.
        """
        self._check_query_and_cache()
        self._check_requests()
        self._check_gate()
        self._check_scale("k_scale", self.k_scale)
        self._check_scale("v_scale", self.v_scale)
        if self.fresh is not None:
            self._check_fresh(self.fresh)

    @property
    def device(self) -> torch.device:
        return self.query.device

    @property
    def requests(self) -> int:
        return self.seq_lens.shape[0]

    @property
    def tokens(self) -> int:
        """Rows of query; those past query_start_loc[requests] are padding."""
        return self.query.shape[0]

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    @property
    def kv_heads(self) -> int:
        return self.k_cache.shape[2]

    @property
    def group(self) -> int:
        """Query heads a KV head: query head h reads KV head h // group."""
        return self.heads // self.kv_heads

    @property
    def head_dim(self) -> int:
        return self.query.shape[2]

    @property
    def block_size(self) -> int:
        return self.k_cache.shape[1]

    @property
    def float8_cache(self) -> bool:
        return self.k_cache.dtype == FLOAT8

    @property
    def layer(self) -> LayerShape:
        return LayerShape(dtype=self.query.dtype, head_dim=self.head_dim, group=self.group,
                          block_size=self.block_size, window=self.gate.window,
                          float8_cache=self.float8_cache)

    def wide_loads(self) -> dict[str, torch.Tensor]:
        """The tensors, by name, that a kernel may read by several elements at a time."""
        named = dict(query=self.query, k_cache=self.k_cache, v_cache=self.v_cache)
        if self.fresh is not None:
            named |= dict(key=self.fresh.key, value=self.fresh.value)
            if self.fresh.norm_rope is not None:
                named |= self.fresh.norm_rope.tensors()
        return named

    def _check_query_and_cache(self) -> None:
        _check_heads("query", self.query, "[T, H, D]")
        checks.dtype("query", self.query, QUERY_DTYPES)
        if min(self.heads, self.head_dim) < 1:
            raise ValueError(f"query has shape {list(self.query.shape)}: "
                             "H and D must be at least 1")
        for name, cache in (("k_cache", self.k_cache), ("v_cache", self.v_cache)):
            _check_heads(name, cache, "[num_blocks, block_size, H_kv, D]")
            checks.same_device(name, cache, "query", self.query)
            checks.dtype(name, cache, (self.query.dtype, FLOAT8))
        checks.same_kind("v_cache", self.v_cache, "k_cache", self.k_cache)
        checks.shape("v_cache", self.v_cache, [tuple(self.k_cache.shape)])
        checks.shape("k_cache", self.k_cache, [(*self.k_cache.shape[:3], self.head_dim)])
        if self.block_size < 1:
            raise ValueError(f"k_cache has shape {list(self.k_cache.shape)}: "
                             "block_size must be at least 1")
        checks.grouped_heads(self.heads, self.kv_heads)

    def _check_requests(self) -> None:
        for name, value, dims in (("seq_lens", self.seq_lens, "[R]"),
                                  ("query_start_loc", self.query_start_loc, "[R + 1]"),
                                  ("block_table", self.block_table, "[R, W]")):
            _check_tensor(name, value, dims, torch.int32)
            checks.same_device(name, value, "query", self.query)
        checks.shape("query_start_loc", self.query_start_loc, [(self.requests + 1,)])
        checks.shape("block_table", self.block_table, [(self.requests, self.block_table.shape[1])])
        for name, value in (("max_query_len", self.max_query_len),
                            ("max_seq_len", self.max_seq_len)):
            check_bound(name, value)
        room = self.block_table.shape[1] * self.block_size
        if self.max_seq_len > room:
            raise ValueError(f"max_seq_len is {self.max_seq_len}: block_table has room for {room} "
                             f"keys, {self.block_table.shape[1]} blocks of {self.block_size}")

    def _check_gate(self) -> None:
        if not isinstance(self.gate, GateParams):
            raise TypeError(f"gate is a {type(self.gate).__name__}: must be a GateParams")
        for name in ("sigma", "alpha", "gamma"):
            value = getattr(self.gate, name)
            _check_tensor(name, value, "[H]", torch.float32)
            checks.same_device(name, value, "query", self.query)
            checks.shape(name, value, [(self.heads,)])

    def _check_scale(self, name: str, scale: torch.Tensor | None) -> None:
        if not self.float8_cache:
            if scale is not None:
                raise ValueError(f"{name} is given: k_cache has dtype {self.k_cache.dtype}, and "
                                 f"only {FLOAT8} has scales")
            return
        _check_tensor(name, scale, "[1] or [H_kv]", torch.float32)
        checks.same_device(name, scale, "query", self.query)
        checks.shape(name, scale, [(1,), (self.kv_heads,)])

    def _check_fresh(self, fresh: FreshKeyValue) -> None:
        for name, value in (("key", fresh.key), ("value", fresh.value)):
            _check_heads(name, value, "[T, H_kv, D]")
            checks.same_kind(name, value, "query", self.query)
            checks.shape(name, value, [(self.tokens, self.kv_heads, self.head_dim)])
        if fresh.norm_rope is not None:
            fresh.norm_rope.check_suits(self.query)
            checks.tensor("slot_mapping", fresh.slot_mapping)
        if fresh.slot_mapping is None:
            return
        _check_tensor("slot_mapping", fresh.slot_mapping, "[T]", torch.int64)
        checks.same_device("slot_mapping", fresh.slot_mapping, "query", self.query)
        checks.shape("slot_mapping", fresh.slot_mapping, [(self.tokens,)])


def check_bound(name: str, value: object) -> None:
    """Raises unless `value` is an int of at least 0, possibly one that is being traced."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)):
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}): must be an int")
    if value < 0:
        raise ValueError(f"{name} is {value}: must be at least 0")


def read_bounds(query_start_loc: torch.Tensor, seq_lens: torch.Tensor) -> tuple[int, int]:
    """The largest number of queries and of keys of a request, read from the device.

    Raises:
        RuntimeError: if a CUDA graph is being captured, which cannot wait for the device.
    """
    _check_tensor("query_start_loc", query_start_loc, "[R + 1]", torch.int32)
    _check_tensor("seq_lens", seq_lens, "[R]", torch.int32)
    if seq_lens.is_cuda and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("max_query_len and max_seq_len must be given while a CUDA graph is "
                           "captured: reading them from the device would wait for it")
    if not seq_lens.numel():
        return 0, 0
    most = torch.stack([query_start_loc.diff().max(), seq_lens.max()])
    max_query_len, max_seq_len = most.tolist()
    return max_query_len, max_seq_len


def check_out(out: torch.Tensor, problem: AttentionProblem) -> None:
    """Raises unless `out` can hold the output: of query's shape, dtype and device, D adjacent."""
    _check_heads("out", out, "[T, H, D]")
    checks.same_kind("out", out, "query", problem.query)
    checks.shape("out", out, [tuple(problem.query.shape)])


def check_workspace(workspace: torch.Tensor, least: int, device: torch.device) -> None:
    """Raises unless `workspace` is uint8, [`least` or more], adjacent, aligned, on `device`."""
    _check_tensor("workspace", workspace, "[bytes]", torch.uint8)
    if workspace.device != device:
        raise ValueError(f"workspace is on {workspace.device} and query on {device}: "
                         "must be the same")
    if workspace.shape[0] < least:
        raise ValueError(f"workspace has {workspace.shape[0]} bytes: must have {least} or more")
    if workspace.data_ptr() % 16:
        raise ValueError(f"workspace is at address {workspace.data_ptr():#x}: "
                         "must be a multiple of 16")


def _check_tensor(name: str, value: object, dims: str, dtype: torch.dtype) -> None:
    """Raises unless `value` is a tensor of `dtype` with as many dimensions as `dims` names and the
    last of them adjacent."""
    checks.tensor(name, value)
    checks.dtype(name, value, (dtype,))
    check_dims(name, value, dims)


def _check_heads(name: str, value: object, dims: str) -> None:
    """Raises unless `value` is a floating-point tensor with dimensions `dims`, D adjacent."""
    checks.floating(name, value)
    check_dims(name, value, dims)


def check_dims(name: str, value: torch.Tensor, dims: str) -> None:
    """Raises unless `value` has as many dimensions as `dims` names, the last of them adjacent."""
    if value.dim() != dims.split(" or ")[-1].count(",") + 1:
        raise ValueError(f"{name} has shape {list(value.shape)}: must be {dims}")
    if value.shape[-1] > 1 and value.stride(-1) != 1:
        raise ValueError(f"{name} has strides {list(value.stride())}: the last must be 1")
