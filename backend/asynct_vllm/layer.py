"""vLLM's attention layer with AsyncI attention."""

from vllm.config import VllmConfig, get_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.attention import Attention
from vllm.v1.kv_cache_interface import KVCacheSpec

from asynct_kernels import GateParams, QkNormRope
from asynct_kernels.attention import LayerShape
from asynct_vllm.backend import AsyncTBackend, NormRopeBackend
from asynct_vllm.builder import capability_of
from asynct_vllm.context_parallel.backend import ContextParallelBackend
from asynct_vllm.plan import describe_norm_rope, invariance_reasons, norm_rope_reasons
from asynct_vllm.settings import settings

logger = init_logger(f"vllm.{__name__}")

# A block size that every kernel takes: the cache's own is not known yet.
_BLOCK_SIZE = 16


class AsyncTAttentionLayer(Attention):
    """`Attention(..., gate=GateParams(...))` with the backend that the configuration calls for.

    Attributes:
        takes_raw: whether `forward` wants queries and keys as the projection made them, and does
            DyHT and RoPE itself.
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int,
        *,
        gate: GateParams,
        norm_rope: QkNormRope,
        **kwargs,
    ) -> None:
        """As vLLM's; `norm_rope` is the DyHT and RoPE of the layer's queries and keys.

        Raises:
            ValueError: VLLM_BATCH_INVARIANT is set, and cannot be had.
        """
        config = get_current_vllm_config()
        layer = LayerShape(
            dtype=config.model_config.dtype, head_dim=head_size, group=num_heads // num_kv_heads,
            block_size=_BLOCK_SIZE, window=gate.window, float8_cache=False)
        about = layer, capability_of(config.device_config.device), settings()
        if settings().batch_invariant:
            _check_invariance(config, invariance_reasons(*about))
        reasons = _model_reasons(config) or norm_rope_reasons(*about)
        self.takes_raw = not reasons
        if self.takes_raw:
            kwargs |= dict(attn_backend=NormRopeBackend, norm_rope=norm_rope)
        elif config.parallel_config.decode_context_parallel_size > 1:
            kwargs |= dict(attn_backend=ContextParallelBackend)
        else:
            kwargs |= dict(attn_backend=AsyncTBackend)
        logger.info_once(describe_norm_rope(reasons))
        super().__init__(num_heads, head_size, scale, num_kv_heads, gate=gate, **kwargs)

    def get_kv_cache_spec(self, vllm_config: VllmConfig) -> KVCacheSpec:
        """What a block of this layer's cache holds."""
        return self.impl.cache_spec(super().get_kv_cache_spec(vllm_config), vllm_config)


def _check_invariance(config: VllmConfig, reasons: list[str]) -> None:
    """Raises ValueError if there are reasons why it cannot be had, context parallelism included."""
    if (ranks := config.parallel_config.decode_context_parallel_size) > 1:
        reasons = [*reasons, f"{ranks} ranks share keys"]
    if reasons:
        raise ValueError("VLLM_BATCH_INVARIANT=1: what else is in the batch would change a "
                         f"request's bits: {'; '.join(reasons)}")


def _model_reasons(config: VllmConfig) -> list[str]:
    """Why the model does DyHT and RoPE, whatever the kernels can do."""
    return [reason for applies, reason in (
        (config.parallel_config.decode_context_parallel_size > 1,
         "decode context parallelism stores keys its own way"),
        (config.speculative_config is not None,
         "a speculated token's keys are read by those after it in the same launch"),
        (config.cache_config.calculate_kv_scales,
         "calculate_kv_scales looks at keys as they are stored"),
    ) if applies]
