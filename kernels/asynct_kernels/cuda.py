"""Launches of the CUDA kernels, on the current stream of the tensors' device.

The arguments have been checked; the outputs are given and all of their elements are written.
"""

import torch

from asynct_kernels import _C, layout
from asynct_kernels.qk_norm_rope import QkNormRope

DTYPES = {
    torch.float32: _C.DataType.float32,
    torch.float16: _C.DataType.float16,
    torch.bfloat16: _C.DataType.bfloat16,
    torch.float8_e4m3fn: _C.DataType.float8_e4m3,
}


def uclip_norm(y, x, alpha, gamma, clip_min, clip_max) -> None:
    with torch.cuda.device(x.device):
        _C.uclip_norm(x=_rows(x), y=y.data_ptr(), dyht=_dyht(alpha, gamma, clip_min, clip_max),
                      **_matrix(y))


def fused_add_uclip_norm(outputs, x, residual, alpha, gamma, clip_min, clip_max) -> None:
    y, new_residual = outputs
    with torch.cuda.device(x.device):
        _C.fused_add_uclip_norm(
            x=_rows(x), residual=_rows(residual), y=y.data_ptr(),
            new_residual=new_residual.data_ptr(),
            dyht=_dyht(alpha, gamma, clip_min, clip_max), **_matrix(y))


def qk_uclip_norm(
    outputs, q, k, q_alpha, q_gamma, k_alpha, k_gamma, clip_min, clip_max
) -> None:
    with torch.cuda.device(q.device):
        _C.qk_uclip_norm(
            dtype=DTYPES[q.dtype],
            q=_heads(q, outputs[0], _dyht(q_alpha, q_gamma, clip_min, clip_max)),
            k=_heads(k, outputs[1], _dyht(k_alpha, k_gamma, clip_min, clip_max)),
            tokens=q.shape[0], head_size=q.shape[2], stream=current_stream(q))


def post_attn_pre_mlp_uclip_out(
    outputs, x, residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, clip_min, clip_max
) -> None:
    y, new_residual = outputs
    with torch.cuda.device(x.device):
        _C.post_attn_pre_mlp_uclip_out(
            x=_rows(x), residual=_rows(residual), y=y.data_ptr(),
            new_residual=new_residual.data_ptr(),
            post=_dyht(post_alpha, post_gamma, clip_min, clip_max),
            mlp=_dyht(mlp_alpha, mlp_gamma, clip_min, clip_max), **_matrix(y))


def relu_and_mul(y, gate_up) -> None:
    with torch.cuda.device(gate_up.device):
        _C.relu_and_mul(gate_up=_rows(gate_up), y=y.data_ptr(), **_matrix(y))


def linear_relu_and_mul(y, x, weight) -> None:
    with torch.cuda.device(x.device):
        _C.linear_relu_and_mul(x=x.data_ptr(), weight=weight.data_ptr(), y=y.data_ptr(),
                               depth=x.shape[1], **_matrix(y))


def linear_add_uclip(
    outputs, x, weight, residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, clip_min, clip_max
) -> None:
    y, new_residual = outputs
    with torch.cuda.device(x.device):
        _C.linear_add_uclip(
            x=x.data_ptr(), weight=weight.data_ptr(), residual=residual.data_ptr(),
            y=y.data_ptr(), new_residual=new_residual.data_ptr(), depth=x.shape[1],
            post=_dyht(post_alpha, post_gamma, clip_min, clip_max),
            mlp=_dyht(mlp_alpha, mlp_gamma, clip_min, clip_max), **_matrix(y))


def current_stream(x: torch.Tensor) -> int:
    return torch.cuda.current_stream(x.device).cuda_stream


def _matrix(y: torch.Tensor) -> dict[str, object]:
    """What every launch over a matrix is told of its output."""
    channels = y.shape[-1]
    return dict(dtype=DTYPES[y.dtype], rows=y.numel() // channels if channels else 0,
                channels=channels, stream=current_stream(y))


def heads_view(x: torch.Tensor) -> _C.HeadsView:
    """x [T, heads, D] as the launches take it."""
    return _C.HeadsView(x.data_ptr(), x.stride(0), x.stride(1))


def norm_rope_params(norm_rope: QkNormRope) -> _C.NormRopeParams:
    q_alpha, q_gamma, k_alpha, k_gamma = norm_rope.parameters
    return _C.NormRopeParams(q=_dyht(q_alpha, q_gamma, *norm_rope.clip),
                             k=_dyht(k_alpha, k_gamma, *norm_rope.clip),
                             cos_sin=_parameter(norm_rope.cos_sin))


def _rows(x: torch.Tensor) -> _C.RowsView:
    return _C.RowsView(x.data_ptr(), layout.row_stride(x))


def _heads(x: torch.Tensor, y: torch.Tensor, dyht: _C.DyHTParams) -> _C.HeadsUclipNormParams:
    return _C.HeadsUclipNormParams(
        x=heads_view(x), y=y.data_ptr(), dyht=dyht,
        heads=x.shape[1])


def _dyht(
    alpha: torch.Tensor, gamma: torch.Tensor, clip_min: float, clip_max: float
) -> _C.DyHTParams:
    return _C.DyHTParams(_parameter(alpha), _parameter(gamma), clip_min, clip_max)


def _parameter(parameter: torch.Tensor) -> _C.Parameter:
    return _C.Parameter(parameter.data_ptr(), DTYPES[parameter.dtype],
                        0 if parameter.numel() == 1 else 1)
