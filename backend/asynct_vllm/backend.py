"""The backend as vLLM knows it: names, shapes and capabilities. The work is in builder and impl."""

from typing import ClassVar

import torch
from vllm.v1.attention.backend import AttentionBackend, MultipleOf

from asynct_vllm import kv_cache
from asynct_vllm.builder import AsyncTMetadataBuilder
from asynct_vllm.impl import KV_CACHE_DTYPES, AsyncTImpl


class AsyncTBackend(AttentionBackend):
    """Give it to `Attention(..., attn_backend=AsyncTBackend, gate=GateParams(...))`.

    vLLM checks none of the capabilities below for a backend given that way: `AsyncTImpl` refuses
    what it cannot serve.
    """

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[list[str]] = list(KV_CACHE_DTYPES)
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        # vLLM looks the name up in AttentionBackendEnum, so an out-of-tree backend has no other.
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[AsyncTImpl]:
        return AsyncTImpl

    @staticmethod
    def get_builder_cls() -> type[AsyncTMetadataBuilder]:
        return AsyncTMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes() -> list[int | MultipleOf]:
        return [MultipleOf(16)]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_size: int,
        cache_dtype_str: str = "auto",
    ) -> tuple[int, ...]:
        """See `kv_cache.shape`.

        Raises:
            ValueError: the block size is not a multiple of 16.
        """
        if block_size < 1 or block_size % 16:
            raise ValueError(f"block_size={block_size}: must be a multiple of 16")
        return kv_cache.shape(num_blocks, block_size, num_kv_heads, head_size)

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """Memory in the shape's own order; with a layers dimension, blocks stay outermost."""
        return (1, 0, 2, 3, 4, 5) if include_num_layers_dimension else (0, 1, 2, 3, 4)


class NormRopeBackend(AsyncTBackend):
    """See AsyncTBackend; for layers with a `norm_rope`, which store their keys themselves."""

    forward_includes_kv_cache_update = True
