"""AsyncI attention over a paged KV cache, by kernels that the caller names."""

from asynct_kernels.attention.ops import attend, explain, prepare, workspace_bytes
from asynct_kernels.attention.prepared import PreparedCall, PreparedNormRope
from asynct_kernels.attention.problem import LayerShape
from asynct_kernels.attention.registry import attention_kernels, find_kernel

__all__ = [
    "LayerShape",
    "PreparedCall",
    "PreparedNormRope",
    "attend",
    "attention_kernels",
    "explain",
    "find_kernel",
    "prepare",
    "workspace_bytes",
]
