"""AsyncI attention over a paged KV cache, by kernels that the caller names."""

from asynct_kernels.attention.ops import attend, explain, workspace_bytes
from asynct_kernels.attention.registry import attention_kernels

__all__ = ["attend", "attention_kernels", "explain", "workspace_bytes"]
