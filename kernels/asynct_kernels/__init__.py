"""Kernels of AsyncT: AsyncI attention, DyHT and ReGLU."""

from asynct_kernels.attention import attend, attention_kernels, explain, prepare, workspace_bytes
from asynct_kernels.attention.cache import reshape_and_cache
from asynct_kernels.attention.norm_rope import qk_norm_rope_cache
from asynct_kernels.gate import GateParams, apply_gate
from asynct_kernels.linear import linear_add_uclip, linear_relu_and_mul
from asynct_kernels.ops import (
    fused_add_uclip_norm,
    post_attn_pre_mlp_uclip_out,
    qk_uclip_norm,
    relu_and_mul,
    uclip_norm,
)
from asynct_kernels.qk_norm_rope import QkNormRope
from asynct_kernels.reference import dyht

__all__ = [
    "GateParams",
    "QkNormRope",
    "apply_gate",
    "attend",
    "attention_kernels",
    "dyht",
    "explain",
    "fused_add_uclip_norm",
    "linear_add_uclip",
    "linear_relu_and_mul",
    "post_attn_pre_mlp_uclip_out",
    "prepare",
    "qk_norm_rope_cache",
    "qk_uclip_norm",
    "relu_and_mul",
    "reshape_and_cache",
    "uclip_norm",
    "workspace_bytes",
]
