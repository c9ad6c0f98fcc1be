"""Keys and values on their way into a paged cache."""

import dataclasses

import torch

from asynct_kernels import _C, checks, cuda
from asynct_kernels.attention import launch
from asynct_kernels.attention.problem import (
    FLOAT8,
    QUERY_DTYPES,
    AttentionProblem,
    FreshKeyValue,
    check_dims,
)
from asynct_kernels.attention.reference import write_cache
from asynct_kernels.library import LIBRARY


@dataclasses.dataclass(frozen=True, eq=False)
class CacheWrite:
    """The arguments of reshape_and_cache; see there."""

    key: torch.Tensor
    value: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    slot_mapping: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None

    def check(self) -> None:
        """Raises TypeError or ValueError for an argument of the wrong type, shape, stride or
        device."""
        self._check_fresh()
        for name, cache in (("k_cache", self.k_cache), ("v_cache", self.v_cache)):
            check_dims(name, cache, "[num_blocks, block_size, H_kv, D]")
            checks.same_device(name, cache, "key", self.key)
            checks.dtype(name, cache, (self.key.dtype, FLOAT8))
        checks.same_kind("v_cache", self.v_cache, "k_cache", self.k_cache)
        checks.shape("v_cache", self.v_cache, [tuple(self.k_cache.shape)])
        checks.shape("k_cache", self.k_cache, [(*self.k_cache.shape[:2], *self.key.shape[1:])])
        if self.block_size < 1:
            raise ValueError(f"k_cache has shape {list(self.k_cache.shape)}: "
                             "block_size must be at least 1")
        self._check_scale("k_scale", self.k_scale)
        self._check_scale("v_scale", self.v_scale)

    @property
    def block_size(self) -> int:
        return self.k_cache.shape[1]

    @property
    def fresh(self) -> FreshKeyValue:
        """The tokens that there are slots for."""
        tokens = self.slot_mapping.shape[0]
        return FreshKeyValue(key=self.key[:tokens], value=self.value[:tokens],
                             slot_mapping=self.slot_mapping)

    def _check_fresh(self) -> None:
        for name, value in (("key", self.key), ("value", self.value)):
            check_dims(name, value, "[T, H_kv, D]")
            checks.dtype(name, value, QUERY_DTYPES)
        checks.same_kind("value", self.value, "key", self.key)
        checks.shape("value", self.value, [tuple(self.key.shape)])
        check_dims("slot_mapping", self.slot_mapping, "[T]")
        checks.dtype("slot_mapping", self.slot_mapping, (torch.int64,))
        checks.same_device("slot_mapping", self.slot_mapping, "key", self.key)
        if self.slot_mapping.shape[0] > self.key.shape[0]:
            raise ValueError(f"slot_mapping has {self.slot_mapping.shape[0]} slots: must have at "
                             f"most as many as key has tokens, {self.key.shape[0]}")

    def _check_scale(self, name: str, scale: torch.Tensor | None) -> None:
        if self.k_cache.dtype != FLOAT8:
            if scale is not None:
                raise ValueError(f"{name} is given: k_cache has dtype {self.k_cache.dtype}, and "
                                 f"only {FLOAT8} has scales")
            return
        checks.tensor(name, scale)
        checks.dtype(name, scale, (torch.float32,))
        checks.same_device(name, scale, "key", self.key)
        checks.shape(name, scale, [(1,), (self.key.shape[1],)])
        check_dims(name, scale, "[H_kv]")


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Writes each token's key and value to its slot of the paged cache.

    Args:
        key, value: [T', H_kv, D] bfloat16 or float16, T' >= T; D adjacent, other strides any.
        k_cache, v_cache: [num_blocks, block_size, H_kv, D] of key's dtype or float8_e4m3fn; D
            adjacent, other strides any. Nothing but the named slots is written.
        slot_mapping: [T] int64: token t goes to slot slot_mapping[t] % block_size of block
            slot_mapping[t] // block_size, or nowhere if negative. No two name the same slot, and
            none a block that the cache does not have.
        k_scale, v_scale: float32 [1] or [H_kv], for a float8 cache only: it gets value / scale,
            rounded to nearest even and saturated.

    Raises:
        TypeError, ValueError: for an argument of the wrong type, shape, stride or device.
        RuntimeError: with CUDA's message, if the launch fails.
    """
    checks.tensors(key=key, value=value, k_cache=k_cache, v_cache=v_cache,
                   slot_mapping=slot_mapping)
    torch.ops.asynct.reshape_and_cache(
        key, value, k_cache, v_cache, slot_mapping, k_scale, v_scale)


def write_fresh(fresh: FreshKeyValue, cache: AttentionProblem | CacheWrite) -> None:
    """Enqueues the write of `fresh` to the caches of `cache`, on the current stream."""
    _, kv_heads, head_dim = fresh.key.shape
    _C.reshape_and_cache(
        dtype=cuda.DTYPES[fresh.key.dtype], fresh=launch.fresh_key_value(fresh),
        cache=launch.paged_cache(cache), tokens=fresh.slot_mapping.shape[0], kv_heads=kv_heads,
        head_dim=head_dim, stream=cuda.current_stream(fresh.key))


def _checked(*args) -> CacheWrite:
    write = CacheWrite(*args)
    write.check()
    return write


def _write_on_cuda(*args) -> None:
    write = _checked(*args)
    with torch.cuda.device(write.key.device):
        write_fresh(write.fresh, write)


def _write_on_cpu(*args) -> None:
    write = _checked(*args)
    write_cache(write, write.fresh)


LIBRARY.define(
    "reshape_and_cache(Tensor key, Tensor value, Tensor(a!) k_cache, Tensor(b!) v_cache, "
    "Tensor slot_mapping, Tensor? k_scale=None, Tensor? v_scale=None) -> ()",
    tags=torch.Tag.pt2_compliant_tag)
LIBRARY.impl("reshape_and_cache", _write_on_cuda, "CUDA")
LIBRARY.impl("reshape_and_cache", _write_on_cpu, "CPU")
torch.library.register_fake(
    "asynct::reshape_and_cache", lambda *args: _checked(*args) and None, lib=LIBRARY)
