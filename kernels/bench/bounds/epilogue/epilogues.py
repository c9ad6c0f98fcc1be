"""The compiled GEMMs with epilogues, as seen from Python."""

import ctypes

import torch

TILES = ("64 x 32 or 96", "128 x 256 cooperative", "128 x 128 pingpong")  # indices of gemm.cuh


class Epilogues:
    """The shared library built from the .cu files of this folder.

    Every method multiplies x [T, k] by a weight [n, k], both bf16 and contiguous. Vectors have a
    value a row of the weight; None stands for ones.
    """

    def __init__(self, path: str):
        self._library = ctypes.CDLL(path)

    def o_proj(self, tile: int, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor,
               *vectors: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """(DyHT_mlp(r), r), r = residual + DyHT_post(x W^T); vectors: alpha and gamma of both."""
        y, new_residual = torch.empty_like(residual), torch.empty_like(residual)
        self._launch("o_proj", tile, x, weight, residual, y, new_residual, _addresses(vectors))
        return y, new_residual

    def gate_up(self, tile: int, x: torch.Tensor, interleaved: torch.Tensor) -> torch.Tensor:
        """relu(x gate^T) * (x up^T) [T, n / 2]; rows 2i and 2i + 1 of the weight: gate i, up i."""
        out = x.new_empty(x.shape[0], interleaved.shape[0] // 2)
        self._launch("gate_up", tile, x, interleaved, out)
        return out

    def qkv(self, tile: int, x: torch.Tensor, weight: torch.Tensor,
            *vectors: torch.Tensor | None) -> torch.Tensor:
        """gamma * clamp(alpha * x W^T, -limit, limit) [T, n]; vectors: alpha, gamma, limit [n]."""
        out = x.new_empty(x.shape[0], weight.shape[0])
        self._launch("qkv", tile, x, weight, out, _addresses(vectors))
        return out

    def _launch(self, name: str, tile: int, x: torch.Tensor, weight: torch.Tensor, *rest) -> None:
        pointers = [ctypes.c_void_p(v.data_ptr()) if isinstance(v, torch.Tensor) else v
                    for v in (x, weight, *rest)]
        status = self._library[f"epilogue_{name}"](
            tile, x.shape[0], weight.shape[0], x.shape[1], *pointers,
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if status:
            raise RuntimeError(f"epilogue_{name}, tile {TILES[tile]}: CUTLASS status {status}")


def _addresses(vectors: tuple[torch.Tensor | None, ...]) -> ctypes.Array:
    return (ctypes.c_void_p * len(vectors))(
        *(None if vector is None else vector.data_ptr() for vector in vectors))
