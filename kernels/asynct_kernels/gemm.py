"""A projection and what follows it, on CUDA: one product with an epilogue, or cuBLAS and a kernel.

Both compute the same, but for the product between cuBLAS and the kernel, which is rounded to the
activations' dtype.
"""

import functools

import torch

from asynct_kernels import cuda

CAPABILITY = (9, 0)  # the cards that the products with an epilogue are compiled for
TILE_ROWS, TILE_COLUMNS = 256, 128  # of the product, computed at a time by two blocks (csrc/gemm)
# From measurements: kernels/docs/bounds.md.
LEAST_SHARE = 0.86
FEWEST_RAGGED_ROWS = 4096  # a tile that rows do not fill is slow: it has to be one of many


def fuses(rows: int, columns: int, device: torch.device) -> bool:
    """Whether a product [rows, columns] is faster with its epilogue than by cuBLAS and a kernel.

    It is where its tiles leave little of the card idle; cuBLAS has smaller ones for the others.
    """
    capability, multiprocessors = _card(device)
    if capability != CAPABILITY or (rows % TILE_ROWS and rows < FEWEST_RAGGED_ROWS):
        return False
    return share_of_card(rows, columns, multiprocessors) > LEAST_SHARE


def share_of_card(rows: int, columns: int, multiprocessors: int) -> float:
    """The share of all blocks' time, in whole waves of tiles, that a product [rows, columns] needs."""
    tiles = -(-rows // TILE_ROWS) * -(-columns // TILE_COLUMNS)
    at_once = multiprocessors // 2
    waves = max(1, -(-tiles // at_once))
    return rows * columns / (waves * at_once * TILE_ROWS * TILE_COLUMNS)


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
