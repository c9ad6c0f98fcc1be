"""Plain PyTorch versions of every operation: the reference of the kernels, and the CPU path."""

from asynct_kernels.reference.activations import relu_and_mul
from asynct_kernels.reference.dense import attention
from asynct_kernels.reference.linear import linear_add_uclip, linear_relu_and_mul
from asynct_kernels.reference.norms import (
    dyht,
    fused_add_uclip_norm,
    post_attn_pre_mlp_uclip_out,
    qk_uclip_norm,
    uclip_norm,
)
from asynct_kernels.reference.rope import qk_norm_rope

__all__ = [
    "attention",
    "dyht",
    "fused_add_uclip_norm",
    "linear_add_uclip",
    "linear_relu_and_mul",
    "post_attn_pre_mlp_uclip_out",
    "qk_norm_rope",
    "qk_uclip_norm",
    "relu_and_mul",
    "uclip_norm",
]
