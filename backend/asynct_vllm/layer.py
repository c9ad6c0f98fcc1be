"""vLLM's attention layer with AsyncI attention."""

from vllm.config import VllmConfig, get_current_vllm_config
from vllm.model_executor.layers.attention import Attention
from vllm.v1.kv_cache_interface import KVCacheSpec

from asynct_vllm.backend import AsyncTBackend
from asynct_vllm.context_parallel.backend import ContextParallelBackend


class AsyncTAttentionLayer(Attention):
    """`Attention(..., gate=GateParams(...))` with the backend that the configuration calls for."""

    def __init__(self, *args, **kwargs) -> None:
        parallel = get_current_vllm_config().parallel_config
        shared = parallel.decode_context_parallel_size > 1
        backend = ContextParallelBackend if shared else AsyncTBackend
        super().__init__(*args, attn_backend=backend, **kwargs)

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> KVCacheSpec:
        """What a block of this layer's cache holds."""
        return self.impl.cache_spec(super().get_kv_cache_spec(vllm_config), vllm_config)
