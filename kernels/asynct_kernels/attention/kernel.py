"""What a kernel of attention is: what it can serve, what it needs, how it is launched."""

import abc
import dataclasses
from typing import ClassVar

import torch

from asynct_kernels.attention.problem import (
    FLOAT8,
    QUERY_DTYPES,
    AttentionProblem,
    LayerShape,
)

FRESH_REFUSED = "key and value are given: must be None"
RAW_REFUSED = "qk_norm_rope is given: must be None"
RAW_WANTED = "key and value are given without qk_norm_rope: must be None"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What a kernel can serve; None stands for anything.

    Attributes:
        capability: (lowest, highest) compute capability of the CUDA device, the highest possibly
            None; None where the kernel also runs on other devices.
        head_dims, groups, block_sizes: the values of D, H / H_kv and block_size.
        window: the longest gate window.
        query_len: the most queries a request.
        alignment: bytes that the addresses, and the strides over anything but D, of query, out,
            caches and fresh keys and values must be multiples of.
        float8: whether the cache may be float8_e4m3fn.
        fresh: whether key and value are "refused", "optional", with qk_norm_rope or without,
            "required" without it, or, optional but with it alone, "raw".
    """

    capability: tuple[tuple[int, int], tuple[int, int] | None] | None = None
    head_dims: tuple[int, ...] | None = None
    groups: tuple[int, ...] | None = None
    block_sizes: tuple[int, ...] | None = None
    window: int | None = None
    query_len: int | None = None
    alignment: int = 1
    float8: bool = True
    fresh: str = "refused"

    @property
    def takes_raw(self) -> bool:
        """Whether query and key may be raw, with qk_norm_rope."""
        return self.fresh in ("optional", "raw")

    def layer_reasons(
        self, layer: LayerShape, capability: tuple[int, int] | None
    ) -> list[str]:
        """Why these limits exclude every call for `layer` on a CUDA device of that compute
        capability, or, for None, on another device; empty: they do not."""
        found = _device_reasons(capability, self.capability)
        if layer.dtype not in QUERY_DTYPES:
            found.append(f"query has dtype {layer.dtype}: "
                         f"must be one of {', '.join(map(str, QUERY_DTYPES))}")
        for name, value, allowed in (
                ("head size D", layer.head_dim, self.head_dims),
                ("heads a KV head", layer.group, self.groups),
                ("block_size", layer.block_size, self.block_sizes)):
            if allowed is not None and value not in allowed:
                found.append(f"{name} is {value}: must be one of {list(allowed)}")
        if self.window is not None and layer.window > self.window:
            found.append(f"gate.window is {layer.window}: must be at most {self.window}")
        if layer.float8_cache and not self.float8:
            found.append(f"k_cache has dtype {FLOAT8}: must be query's")
        return found

    def call_reasons(self, problem: AttentionProblem) -> list[str]:
        """Why these limits exclude this call for a layer that they do not exclude."""
        found = []
        if self.query_len is not None and problem.max_query_len > self.query_len:
            found.append(f"max_query_len is {problem.max_query_len}: "
                         f"must be at most {self.query_len}")
        if problem.fresh is None and self.fresh == "required":
            found.append("key and value are None: must be given")
        if problem.fresh is not None:
            raw = problem.fresh.norm_rope is not None
            if self.fresh == "refused":
                found.append(FRESH_REFUSED)
            elif raw and not self.takes_raw:
                found.append(RAW_REFUSED)
            elif not raw and self.fresh == "raw":
                found.append(RAW_WANTED)
        for name, tensor in problem.wide_loads().items():
            found += misaligned(name, tensor, self.alignment)
        return found


class AttentionKernel(abc.ABC):
    """A kernel that the caller can name.

    Attributes:
        name: its name, in Python and in torch.ops.asynct.
        limits: what it can serve.
        tuning: its own keywords, each an int.
    """

    name: ClassVar[str]
    limits: ClassVar[Limits]
    tuning: ClassVar[tuple[str, ...]] = ()

    def layer_reasons(
        self, layer: LayerShape, capability: tuple[int, int] | None
    ) -> list[str]:
        """Why the kernel can serve no call for `layer` on a CUDA device of that compute capability,
        or, for None, on another device; empty: it can serve some."""
        return self.limits.layer_reasons(layer, capability)

    def reasons(self, problem: AttentionProblem) -> list[str]:
        """Why the kernel cannot serve `problem`; empty: it can. Looks at nothing on the device."""
        on_cuda = problem.device.type == "cuda"
        capability = torch.cuda.get_device_capability(problem.device) if on_cuda else None
        return self.layer_reasons(problem.layer, capability) + self.limits.call_reasons(problem)

    def needs_workspace(self, problem: AttentionProblem) -> bool:
        """Whether the caller has to give the workspace, as it holds what an earlier call wrote."""
        return False

    def workspace_bytes(self, problem: AttentionProblem) -> int:
        """Bytes of scratch memory that `run` needs; may hold anything before, and after."""
        return 0

    @abc.abstractmethod
    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        """Enqueues the work on the current stream; there is at least one request and one query.

        Args:
            problem: one that `reasons` has nothing against.
            out: [T, H, D] like query; rows past query_start_loc[requests] are left as they are.
            workspace: uint8, at least workspace_bytes(problem), 16-byte aligned.
        """


def misaligned(name: str, tensor: torch.Tensor, alignment: int) -> list[str]:
    """Why the address or a stride of `tensor` is no multiple of `alignment` bytes."""
    found = []
    if tensor.data_ptr() % alignment:
        found.append(f"{name} is at address {tensor.data_ptr():#x}: "
                     f"must be a multiple of {alignment}")
    for dim in range(tensor.dim() - 1):
        stride = tensor.stride(dim) * tensor.element_size()
        if tensor.shape[dim] > 1 and stride % alignment:
            found.append(f"{name} has a stride of {stride} bytes in dimension {dim}: "
                         f"must be a multiple of {alignment}")
    return found


def _device_reasons(
    capability: tuple[int, int] | None,
    allowed: tuple[tuple[int, int], tuple[int, int] | None] | None,
) -> list[str]:
    if allowed is None:
        return []
    lowest, highest = allowed
    wanted = f"compute capability {lowest[0]}.{lowest[1]}"
    if highest != lowest:
        wanted += " or later" if highest is None else f" to {highest[0]}.{highest[1]}"
    if capability is None:
        return [f"query is on no CUDA device: must be on one of {wanted}"]
    if capability < lowest or (highest is not None and capability > highest):
        return [f"query is on a device of compute capability {capability[0]}.{capability[1]}: "
                f"must be {wanted}"]
    return []
