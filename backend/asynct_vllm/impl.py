"""The attention of one layer: refuses what it cannot serve, then executes each step's plan."""

import math

import torch
from vllm import _custom_ops as ops
from vllm.config import VllmConfig
from vllm.v1.attention.backend import AttentionImpl, AttentionLayer, AttentionType
from vllm.v1.kv_cache_interface import AttentionSpec

from asynct_kernels import GateParams, QkNormRope
from asynct_kernels.attention.problem import FLOAT8
from asynct_vllm import kv_cache as paged
from asynct_vllm.metadata import AsyncTMetadata, LayerTensors

FLOAT8_DTYPES = ("fp8", "fp8_e4m3")
KV_CACHE_DTYPES = ("auto", "float16", "bfloat16", *FLOAT8_DTYPES)


class AsyncTImpl(AttentionImpl[AsyncTMetadata]):
    """AsyncI attention of one layer over the paged cache."""

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        gate: GateParams | None = None,
        norm_rope: QkNormRope | None = None,
    ) -> None:
        """Takes what vLLM's `Attention(..., gate=gate)` passes on.

        Args:
            scale: must be the gate's, `gate.score_scale(head_size)`.
            gate: the layer's gate; its per-head tensors hold this rank's `num_heads` heads.
            norm_rope: DyHT and RoPE that queries and keys get here, and then the cache its keys and
                values (`NormRopeBackend`); None for layers that have done all that.

        Raises:
            TypeError: `gate` is missing or not a `GateParams`.
            ValueError: a per-head tensor of the gate does not have `num_heads` values, or the layer
                asks for what AsyncI attention or this backend does not do (each is named).
        """
        if not isinstance(gate, GateParams):
            raise TypeError(f"gate={gate!r}: AsyncT attention needs an asynct_kernels.GateParams")
        gate.check_heads(num_heads)
        if num_kv_heads is None:
            num_kv_heads = num_heads
        refusals = [
            reason
            for refused, reason in (
                (
                    num_kv_heads < 1 or num_heads % num_kv_heads != 0,
                    f"num_heads={num_heads} is not a multiple of num_kv_heads={num_kv_heads}",
                ),
                (
                    not math.isclose(scale, gate.score_scale(head_size), rel_tol=1e-6),
                    f"scale={scale} is not the gate's {gate.score_scale(head_size)}",
                ),
                (alibi_slopes is not None, f"alibi_slopes={alibi_slopes}: there is no ALiBi"),
                (
                    sliding_window is not None,
                    f"sliding_window={sliding_window}: a query sees every key up to its own",
                ),
                (bool(logits_soft_cap), f"logits_soft_cap={logits_soft_cap}: there is no soft cap"),
                (attn_type != AttentionType.DECODER, f"attn_type={attn_type}: only decoder"),
                (
                    kv_sharing_target_layer_name is not None,
                    f"kv_sharing_target_layer_name={kv_sharing_target_layer_name!r}: every layer "
                    "has its own cache",
                ),
                (
                    kv_cache_dtype not in KV_CACHE_DTYPES,
                    f"kv_cache_dtype={kv_cache_dtype!r}: only {', '.join(KV_CACHE_DTYPES)}",
                ),
                (
                    self.pcp_world_size != 1,
                    f"prefill context parallelism over {self.pcp_world_size} ranks: only 1",
                ),
                (
                    self.dcp_world_size != 1 and not self.can_return_lse_for_decode,
                    f"decode context parallelism over {self.dcp_world_size} ranks: only by "
                    "ContextParallelImpl",
                ),
            )
            if refused
        ]
        if refusals:
            raise ValueError("AsyncT attention cannot serve this layer: " + "; ".join(refusals))
        self.num_heads = num_heads
        self.attended_heads = num_heads  # that the rank computes
        self.num_kv_heads = num_kv_heads
        self.head_size = head_size
        self.scale = scale
        self.kv_cache_dtype = kv_cache_dtype
        self.float8_cache = kv_cache_dtype in FLOAT8_DTYPES
        self.gate = gate
        self.norm_rope = norm_rope

    def cache_spec(self, spec: AttentionSpec, vllm_config: VllmConfig) -> AttentionSpec:
        """What the layer's cache is to be, where vLLM's own would be `spec`."""
        del vllm_config
        return spec

    def do_kv_cache_update(
        self,
        layer: AttentionLayer,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Stores the step's K and V (`[T, H_kv, D]`); tokens without a slot are skipped."""
        if kv_cache.device.type == "cpu":
            paged.write(key, value, self._typed(kv_cache), slot_mapping, *self._scales(layer))
            return
        k_cache, v_cache = paged.split(kv_cache)
        ops.reshape_and_cache_flash(
            key,
            value,
            k_cache,
            v_cache,
            slot_mapping,
            self.kv_cache_dtype,
            layer._k_scale,
            layer._v_scale,
        )

    def forward(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AsyncTMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Writes the attention of `query` `[T, H, D]` over the cache into `output` `[T, H, D]`.

        Rows past the step's tokens (graph padding) become zeros, and so do all rows of a run
        without metadata (vLLM's memory profiling).

        Raises:
            ValueError: a quantised output is asked for, or the cache has another layout.
        """
        if output_scale is not None or output_block_scale is not None:
            raise ValueError("output_scale: AsyncT attention does not quantise its output")
        if attn_metadata is None:
            return output.zero_()
        self.attend(layer, query, key, value, kv_cache, attn_metadata, output)
        if attn_metadata.num_tokens < output.shape[0]:
            output[attn_metadata.num_tokens :] = 0
        return output

    def attend(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: AsyncTMetadata,
        output: torch.Tensor,
    ) -> None:
        """Writes the rows of the step's tokens into `output`, as `forward` has it."""
        k_cache, v_cache = paged.split(self._typed(kv_cache))
        k_scale, v_scale = self._scales(layer)
        attn_metadata.work.attend(
            LayerTensors(query, key, value, k_cache, v_cache, self.gate, output, k_scale, v_scale,
                         self.norm_rope)
        )

    def _typed(self, kv_cache: torch.Tensor) -> torch.Tensor:
        """vLLM allocates a float8 cache as bytes."""
        return kv_cache.view(FLOAT8) if self.float8_cache else kv_cache

    def _scales(self, layer: AttentionLayer) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """K's and V's, `[1]` or `[H_kv]` float32 on the device, of a float8 cache."""
        if not self.float8_cache:
            return None, None
        return layer._k_scale.view(-1), layer._v_scale.view(-1)
