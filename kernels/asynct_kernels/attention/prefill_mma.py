"""Prefill on CUDA by mma.sync (csrc/prefill/mma*), for cards of compute capability 8.0 and later."""

import torch

from asynct_kernels import _C
from asynct_kernels.attention import launch
from asynct_kernels.attention.kernel import AttentionKernel, Limits
from asynct_kernels.attention.problem import AttentionProblem


class PrefillMmaKernel(AttentionKernel):
    """Any number of queries a request; the query heads of a KV head share what is read of it."""

    name = "hp1_prefill_mma"
    limits = Limits(capability=((8, 0), None), head_dims=(64, 128, 256), window=8, alignment=16)

    def run(self, problem: AttentionProblem, out: torch.Tensor, workspace: torch.Tensor) -> None:
        _C.hp1_prefill_mma(params=launch.attention_params(problem, out),
                           stream=launch.stream(problem))
