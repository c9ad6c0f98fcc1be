"""A projection and what follows it, on CUDA: one product with an epilogue, or cuBLAS and a kernel.

Both compute the same, but for the product between cuBLAS and the kernel, which is rounded to the
activations' dtype.
"""

import functools

import torch

from asynct_kernels import cuda

TILE = 128  # rows and columns of the product that a block computes at a time (csrc/gemm)
CAPABILITY = (9, 0)  # the cards that the products with an epilogue are compiled for


def fuses(rows: int, columns: int, device: torch.device) -> bool:
    """Whether a product [rows, columns] is faster with its epilogue than by cuBLAS and a kernel.

    It is where its tiles fill the card: cuBLAS has smaller ones (kernels/docs/bounds.md).
    """
    capability, multiprocessors = _card(device)
    return capability == CAPABILITY and -(-rows // TILE) * -(-columns // TILE) >= multiprocessors


@functools.cache
def _card(device: torch.device) -> tuple[tuple[int, int], int]:
    properties = torch.cuda.get_device_properties(device)
    return (properties.major, properties.minor), properties.multi_processor_count


def linear_relu_and_mul(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    if fuses(x.shape[0], weight.shape[0], x.device):
        cuda.linear_relu_and_mul(y, x, weight)
    else:
        cuda.relu_and_mul(y, x @ weight.T)


def linear_add_uclip(outputs, x, weight, residual, *dyht) -> None:
    if fuses(x.shape[0], weight.shape[0], x.device):
        cuda.linear_add_uclip(outputs, x, weight, residual, *dyht)
    else:
        cuda.post_attn_pre_mlp_uclip_out(outputs, x @ weight.T, residual, *dyht)
