"""The layers of AsyncT for vLLM: DyHT, AsyncI attention, ReGLU and the decoder layer.

Shapes below: T tokens of the step's batch, H and H_kv query and key/value heads of this
tensor-parallel rank, D the head's width. Linear layers are vLLM's parallel ones; between them are
DyHTs and the ReGLU.
"""

from types import ModuleType

import asynct_kernels
import torch
from asynct_kernels import GateParams, QkNormRope, reference
from asynct_vllm.layer import AsyncTAttentionLayer
from torch import nn
from vllm.config import CacheConfig
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from vllm.model_executor.layers.quantization import QuantizationConfig
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.model_executor.model_loader.weight_utils import sharded_weight_loader
from vllm.model_executor.utils import set_weight_attrs

from asynct_model.configuration import AsyncTConfig
from asynct_model.vllm_epilogues import takes_epilogue


def fused_ops() -> ModuleType:
    """Where DyHT and ReGLU come from: one kernel each; for torch.compile the plain formulas.

    The compiler fuses those with what stands beside them, RoPE for one, and is no slower in each
    than the kernel (kernels/docs/bounds.md).
    """
    return reference if torch.compiler.is_compiling() else asynct_kernels


def heads_per_rank(num_heads: int, num_kv_heads: int, tp_size: int) -> tuple[int, int]:
    """Returns (H, H_kv) of one tensor-parallel rank; fewer KV heads than ranks are replicated.

    Raises:
        ValueError: the heads do not spread evenly over `tp_size` ranks.
    """
    if num_heads % tp_size:
        raise ValueError(
            f"num_attention_heads={num_heads} must be a multiple of tensor_parallel_size={tp_size}"
        )
    if num_kv_heads % tp_size and tp_size % num_kv_heads:
        raise ValueError(
            f"num_key_value_heads={num_kv_heads} must be a multiple or a divisor of "
            f"tensor_parallel_size={tp_size}"
        )
    return num_heads // tp_size, max(1, num_kv_heads // tp_size)


class DyHT(nn.Module):
    """gamma * clamp(alpha * x, clip), the model's normalisation (spec: DyHT).

    Args:
        name: the module's name inside its layer ("input_layernorm"), or "norm"; the configuration
            has its parameters' sizes.
    """

    def __init__(self, config: AsyncTConfig, name: str) -> None:
        super().__init__()
        self.clip = config.dyht_clip
        alpha, gamma = config.dyht_sizes(name)
        self.alpha = nn.Parameter(torch.ones(alpha, dtype=torch.float32), requires_grad=False)
        self.gamma = nn.Parameter(torch.ones(gamma, dtype=torch.float32), requires_grad=False)

    def forward(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """DyHT(x); with a residual, (DyHT(x + residual), x + residual), as vLLM's norms have it."""
        if residual is None:
            return fused_ops().uclip_norm(x, self.alpha, self.gamma, *self.clip)
        return fused_ops().fused_add_uclip_norm(x, residual, self.alpha, self.gamma, *self.clip)


class AsyncTAttention(nn.Module):
    """QKV projection, DyHT and RoPE on q and k, AsyncI attention.

    It holds the output projection, which the layer applies with what follows it.
    """

    def __init__(
        self,
        config: AsyncTConfig,
        cache_config: CacheConfig | None,
        quant_config: QuantizationConfig | None,
        prefix: str,
    ) -> None:
        super().__init__()
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        self.num_heads, self.num_kv_heads = heads_per_rank(
            heads, kv_heads, get_tensor_model_parallel_world_size()
        )
        self.qkv_proj = QKVParallelLinear(
            config.hidden_size,
            self.head_dim,
            heads,
            kv_heads,
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.qkv_proj",
        )
        self.o_proj = RowParallelLinear(
            heads * self.head_dim,
            config.hidden_size,
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.o_proj",
        )
        self.q_norm = DyHT(config, "self_attn.q_norm")
        self.k_norm = DyHT(config, "self_attn.k_norm")
        self.rotary_emb = get_rope(
            self.head_dim,
            max_position=config.max_position_embeddings,
            rope_parameters=config.rope_parameters,
        )
        for name in ("sigma", "alpha", "gamma"):
            values = torch.ones(self.num_heads, dtype=torch.float32)
            parameter = nn.Parameter(values, requires_grad=False)
            set_weight_attrs(parameter, {"weight_loader": sharded_weight_loader(0)})
            self.register_parameter(name, parameter)
        gate = GateParams(self.sigma, self.alpha, self.gamma, **config.gate_settings)
        self.attn = AsyncTAttentionLayer(
            self.num_heads,
            self.head_dim,
            gate.score_scale(self.head_dim),
            num_kv_heads=self.num_kv_heads,
            cache_config=cache_config,
            quant_config=quant_config,
            prefix=f"{prefix}.attn",
            gate=gate,
            norm_rope=self._norm_rope(),
        )

    def _norm_rope(self) -> QkNormRope:
        """What q and k get before the attention, for kernels that do it there."""
        return QkNormRope(
            q_alpha=self.q_norm.alpha,
            q_gamma=self.q_norm.gamma,
            k_alpha=self.k_norm.alpha,
            k_gamma=self.k_norm.gamma,
            clip=self.q_norm.clip,
            cos_sin=self.rotary_emb.cos_sin_cache,
        )

    def forward(self, positions: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        """positions [T], hidden_states [T, hidden] -> the rank's heads [T, H * D]."""
        qkv, _ = self.qkv_proj(hidden_states)
        q, k, v = qkv.unflatten(-1, (-1, self.head_dim)).split(
            [self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=-2
        )
        if self.attn.takes_raw:
            q, k = q.flatten(-2), k.flatten(-2)
        else:
            q, k = self._norm_and_turn(positions, q, k)
        return self.attn(q, k, v.flatten(-2))

    def _norm_and_turn(
        self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """DyHT and RoPE: q [T, H, D], k [T, H_kv, D] -> [T, H * D], [T, H_kv * D]."""
        q, k = fused_ops().qk_uclip_norm(
            q,
            k,
            self.q_norm.alpha,
            self.q_norm.gamma,
            self.k_norm.alpha,
            self.k_norm.gamma,
            *self.q_norm.clip,
        )
        return self.rotary_emb(positions, q.flatten(-2), k.flatten(-2))


class ReGLU(nn.Module):
    """W_down(relu(W_gate x) * (W_up x))."""

    def __init__(
        self, config: AsyncTConfig, quant_config: QuantizationConfig | None, prefix: str
    ) -> None:
        super().__init__()
        self.gate_up_proj = MergedColumnParallelLinear(
            config.hidden_size,
            [config.intermediate_size] * 2,
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.gate_up_proj",
        )
        self.down_proj = RowParallelLinear(
            config.intermediate_size,
            config.hidden_size,
            bias=False,
            quant_config=quant_config,
            prefix=f"{prefix}.down_proj",
        )
        self.one_kernel = takes_epilogue(self.gate_up_proj, "gate_up_proj", "ReGLU")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden], summed over the ranks."""
        if self.one_kernel:
            x = asynct_kernels.linear_relu_and_mul(x, self.gate_up_proj.weight)
        else:
            gate_up, _ = self.gate_up_proj(x)
            x = fused_ops().relu_and_mul(gate_up)
        output, _ = self.down_proj(x)
        return output


class AsyncTDecoderLayer(nn.Module):
    """One layer. The add of its MLP's output is left to the next DyHT, which fuses with it."""

    def __init__(
        self,
        config: AsyncTConfig,
        cache_config: CacheConfig | None,
        quant_config: QuantizationConfig | None,
        prefix: str,
    ) -> None:
        super().__init__()
        self.input_layernorm = DyHT(config, "input_layernorm")
        self.self_attn = AsyncTAttention(config, cache_config, quant_config, f"{prefix}.self_attn")
        self.post_attn_layernorm = DyHT(config, "post_attn_layernorm")
        self.pre_mlp_layernorm = DyHT(config, "pre_mlp_layernorm")
        self.mlp = ReGLU(config, quant_config, f"{prefix}.mlp")
        self.one_kernel = takes_epilogue(
            self.self_attn.o_proj, "o_proj", "DyHT, the residual and DyHT"
        )

    def forward(
        self, positions: torch.Tensor, hidden_states: torch.Tensor, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The stream is hidden_states + residual ([T, hidden] each), also in what is returned."""
        if residual is None:
            residual = hidden_states
            hidden_states = self.input_layernorm(hidden_states)
        else:
            hidden_states, residual = self.input_layernorm(hidden_states, residual)
        heads = self.self_attn(positions, hidden_states)
        hidden_states, residual = self._after_attention(heads, residual)
        return self.mlp(hidden_states), residual

    def _after_attention(
        self, heads: torch.Tensor, residual: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Output projection, DyHT_post, residual and DyHT_mlp: ([T, hidden], new residual)."""
        o_proj = self.self_attn.o_proj
        post_attn, pre_mlp = self.post_attn_layernorm, self.pre_mlp_layernorm
        dyht = (post_attn.alpha, post_attn.gamma, pre_mlp.alpha, pre_mlp.gamma, *pre_mlp.clip)
        if self.one_kernel:
            return asynct_kernels.linear_add_uclip(heads, o_proj.weight, residual, *dyht)
        output, _ = o_proj(heads)
        return fused_ops().post_attn_pre_mlp_uclip_out(output, residual, *dyht)
