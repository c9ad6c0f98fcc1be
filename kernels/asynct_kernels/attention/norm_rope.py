"""DyHT and RoPE of a step's queries and keys, and the write of its keys and values to the cache."""

import dataclasses

import torch

from asynct_kernels import _C, checks, cuda, reference
from asynct_kernels.attention import launch
from asynct_kernels.attention.cache import CacheWrite
from asynct_kernels.attention.problem import FreshKeyValue, check_dims
from asynct_kernels.attention.reference import write_cache
from asynct_kernels.library import LIBRARY
from asynct_kernels.qk_norm_rope import QkNormRope


def qk_norm_rope_cache(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    positions: torch.Tensor,
    norm_rope: QkNormRope,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (q', k') of norm_rope, and writes each token's k' and value to the paged cache.

    One launch for all tokens. A token's bits do not depend on the others.

    Args:
        query: [T, H, D] bfloat16 or float16; D adjacent, other strides any.
        key, value: [T, H_kv, D] likewise; H is a multiple of H_kv.
        positions: [T] int64, each below norm_rope.cos_sin's max_position.
        norm_rope: the parameters, for D channels.
        k_cache, v_cache, k_scale, v_scale: as reshape_and_cache takes them. An fp8 cache gets what
            k' is after it was rounded to query's dtype.
        slot_mapping: [T'] int64, T' <= T, as reshape_and_cache takes it; tokens past T' go to no
            slot.
        out: where to write q' [T, H, D] and k' [T, H_kv, D]: contiguous, of query's dtype.

    Raises:
        TypeError, ValueError: for an argument of the wrong type, shape, stride or device.
        RuntimeError: with CUDA's message, if the launch fails.
    """
    checks.tensors(query=query, key=key, value=value, positions=positions, k_cache=k_cache,
                   v_cache=v_cache, slot_mapping=slot_mapping)
    _check_norm_rope(norm_rope)
    if out is None:
        out = new_outputs(query, key)
    torch.ops.asynct.qk_norm_rope_cache(
        *out, query, key, value, positions, *norm_rope.parameters, *norm_rope.clip,
        norm_rope.cos_sin, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    return out


def new_outputs(query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Uninitialised q' and k'."""
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key))


def _check_norm_rope(norm_rope: object) -> None:
    if not isinstance(norm_rope, QkNormRope):
        raise TypeError(f"norm_rope is a {type(norm_rope).__name__}: must be a QkNormRope")


@dataclasses.dataclass(frozen=True, eq=False)
class NormRopeCache:
    """The arguments of qk_norm_rope_cache; see there.

    Attributes:
        out: q' and k'.
        write: of the key before norm and RoPE.
    """

    out: tuple[torch.Tensor, torch.Tensor]
    query: torch.Tensor
    positions: torch.Tensor
    norm_rope: QkNormRope
    write: CacheWrite

    def check(self) -> None:
        """Raises TypeError or ValueError for an argument of the wrong type, shape, stride or
        device."""
        _check_norm_rope(self.norm_rope)
        self.write.check()
        query, key, positions = self.query, self.write.key, self.positions
        check_dims("query", query, "[T, H, D]")
        checks.same_kind("query", query, "key", key)
        checks.shape("query", query, [(key.shape[0], query.shape[1], key.shape[2])])
        checks.grouped_heads(query.shape[1], key.shape[1])
        self.norm_rope.check_suits(query)
        check_dims("positions", positions, "[T]")
        checks.dtype("positions", positions, (torch.int64,))
        checks.same_device("positions", positions, "query", query)
        checks.shape("positions", positions, [(query.shape[0],)])
        for name, out, x in (("out[0]", self.out[0], query), ("out[1]", self.out[1], key)):
            checks.same_kind(name, out, "query", query)
            checks.shape(name, out, [tuple(x.shape)])
            if not out.is_contiguous():
                raise ValueError(f"{name} has strides {list(out.stride())}: must be contiguous")

    def run(self) -> None:
        """Enqueues what has been checked, on the current stream; on the CPU, computes it."""
        query, key, write = self.query, self.write.key, self.write
        # All rows, also those without a slot.
        fresh = FreshKeyValue(key=key, value=write.value, slot_mapping=write.slot_mapping)
        if not query.is_cuda:
            self._run_on_cpu()
            return
        with torch.cuda.device(query.device):
            _C.qk_norm_rope_cache(
                dtype=cuda.DTYPES[query.dtype], fresh=launch.fresh_key_value(fresh),
                cache=launch.paged_cache(write), slots=write.slot_mapping.shape[0],
                kv_heads=key.shape[1], head_dim=key.shape[2], query=cuda.heads_view(query),
                heads=query.shape[1], positions=self.positions.data_ptr(), tokens=query.shape[0],
                norm_rope=cuda.norm_rope_params(self.norm_rope), query_out=self.out[0].data_ptr(),
                key_out=self.out[1].data_ptr(), stream=cuda.current_stream(query))

    def _run_on_cpu(self) -> None:
        write, turned = self.write, reference.qk_norm_rope(
            self.query, self.write.key, self.positions, self.norm_rope)
        for out, values in zip(self.out, turned):
            out.copy_(values)
        key = self.out[1][:len(write.slot_mapping)]
        write_cache(write, dataclasses.replace(write.fresh, key=key))


def _asked(
    query_out, key_out, query, key, value, positions, q_alpha, q_gamma, k_alpha, k_gamma, clip_min,
    clip_max, cos_sin, k_cache, v_cache, slot_mapping, k_scale=None, v_scale=None
) -> NormRopeCache:
    """The operation's arguments, checked."""
    asked = NormRopeCache(
        (query_out, key_out), query, positions,
        QkNormRope(q_alpha=q_alpha, q_gamma=q_gamma, k_alpha=k_alpha, k_gamma=k_gamma,
                   clip=(clip_min, clip_max), cos_sin=cos_sin),
        CacheWrite(key, value, k_cache, v_cache, slot_mapping, k_scale, v_scale))
    asked.check()
    return asked


LIBRARY.define(
    "qk_norm_rope_cache(Tensor(a!) query_out, Tensor(b!) key_out, Tensor query, Tensor key, "
    "Tensor value, Tensor positions, Tensor q_alpha, Tensor q_gamma, Tensor k_alpha, "
    "Tensor k_gamma, float clip_min, float clip_max, Tensor cos_sin, Tensor(c!) k_cache, "
    "Tensor(d!) v_cache, Tensor slot_mapping, Tensor? k_scale=None, Tensor? v_scale=None) -> ()",
    tags=torch.Tag.pt2_compliant_tag)
for _device in ("CPU", "CUDA"):
    LIBRARY.impl("qk_norm_rope_cache", lambda *args: _asked(*args).run(), _device)
torch.library.register_fake(
    "asynct::qk_norm_rope_cache", lambda *args: _asked(*args) and None, lib=LIBRARY)
