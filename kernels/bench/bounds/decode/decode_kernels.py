"""The compiled decode variants as seen from Python."""

import ctypes
import dataclasses

import torch

HEAD_SIZE = 128
PAGE = 16
ROW_BYTES = 2 * HEAD_SIZE
WORDS_PER_ROW = ROW_BYTES // 4


class _Params(ctypes.Structure):
    """Mirrors Params of params.h."""

    _fields_ = [
        ("query", ctypes.c_void_p),
        ("k_cache", ctypes.c_void_p),
        ("v_cache", ctypes.c_void_p),
        ("block_stride", ctypes.c_int64),
        ("block_table", ctypes.c_void_p),
        ("table_width", ctypes.c_int64),
        ("work", ctypes.c_void_p),
        ("work_capacity", ctypes.c_int64),
        ("partials", ctypes.c_void_p),
        ("finished", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("sigma", ctypes.c_void_p),
        ("alpha", ctypes.c_void_p),
        ("gamma", ctypes.c_void_p),
        ("scale", ctypes.c_float),
        ("keep_below", ctypes.c_uint32),
        ("kv_heads", ctypes.c_int32),
        ("segment_keys", ctypes.c_int32),
    ]


@dataclasses.dataclass(frozen=True)
class Variant:
    """One compiled kernel: `group` query heads a KV head, 0 for one that only moves bytes."""

    index: int
    name: str
    group: int
    longest_segment: int  # keys


@dataclasses.dataclass(frozen=True)
class Batch:
    """One decode step's inputs: a query token for each request over a paged cache.

    query [requests, heads, 128] bf16; block_table [requests, width] and lengths [requests] int32;
    sigma, alpha, gamma [heads] float32.
    """

    query: torch.Tensor
    block_table: torch.Tensor
    lengths: torch.Tensor
    kv_heads: int
    sigma: torch.Tensor
    alpha: torch.Tensor
    gamma: torch.Tensor
    kept_rows: float  # of V, by the kernels that only move bytes


def work_list(lengths: list[int], segment: int) -> torch.Tensor:
    """[segments + 1, 4] int32: the WorkItems of params.h, ended by one of no request."""
    items = [(request, first, min(first + segment, length), length)
             for request, length in enumerate(lengths)
             for first in range(0, max(length, 1), segment)]
    return torch.tensor(items + [(-1, 0, 0, 0)], dtype=torch.int32)


class DecodeKernels:
    """The shared library built from decode_bounds.cu."""

    def __init__(self, path: str):
        self._library = ctypes.CDLL(path)
        self._library.decode_bounds_name.restype = ctypes.c_char_p
        self._library.decode_bounds_launch.argtypes = [
            ctypes.c_int, ctypes.POINTER(_Params), ctypes.c_int, ctypes.c_void_p]
        self._library.decode_bounds_stream.argtypes = [
            ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
        self.variants = []
        while name := self._library.decode_bounds_name(len(self.variants)):
            index = len(self.variants)
            self.variants.append(Variant(index, name.decode(),
                                         self._library.decode_bounds_group(index),
                                         self._library.decode_bounds_longest_segment(index)))

    def blocks_per_multiprocessor(self, variant: Variant) -> int:
        """Raises RuntimeError where the variant cannot run on this card."""
        blocks = self._library.decode_bounds_prepare(variant.index)
        if blocks <= 0:
            raise RuntimeError(f"{variant.name}: CUDA error {-blocks}")
        return blocks

    def bind(self, variant: Variant, batch: Batch, segment: int):
        """A function of a cache [blocks, 2, 16, kv_heads, 128] that launches and returns out.

        out is [requests, heads, 128] float32, or [requests, kv_heads, 64] for the kernels that only
        move bytes; its memory is the function's own. The grid fills the card, whatever the lengths.
        """
        device = batch.query.device
        multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
        grid = multiprocessors * self.blocks_per_multiprocessor(variant)
        requests, heads = batch.query.shape[:2]
        work = work_list(batch.lengths.tolist(), segment).to(device)
        row = ((heads, HEAD_SIZE) if variant.group else (batch.kv_heads, WORDS_PER_ROW))
        out = torch.full((requests, *row), float("nan"), device=device)
        partials = torch.full((len(work), *row), float("nan"), device=device)
        finished = torch.zeros(requests, batch.kv_heads, dtype=torch.int32, device=device)
        keep_below = min(round(batch.kept_rows * 2**32), 2**32 - 1)

        def launch(cache: torch.Tensor) -> torch.Tensor:
            params = _Params(
                batch.query.data_ptr(), cache[:, 0].data_ptr(), cache[:, 1].data_ptr(),
                cache.stride(0) * cache.element_size(), batch.block_table.data_ptr(),
                batch.block_table.stride(0), work.data_ptr(), len(work), partials.data_ptr(),
                finished.data_ptr(), out.data_ptr(), batch.sigma.data_ptr(),
                batch.alpha.data_ptr(), batch.gamma.data_ptr(), 1.0 / HEAD_SIZE, keep_below,
                batch.kv_heads, segment)
            self._check(self._library.decode_bounds_launch(
                variant.index, ctypes.byref(params), grid,
                torch.cuda.current_stream().cuda_stream))
            return out

        return launch

    def stream(self, data: torch.Tensor, size: int, sink: torch.Tensor) -> None:
        """Reads the first `size` bytes of `data` once, as fast as plain loads go."""
        self._check(self._library.decode_bounds_stream(
            data.data_ptr(), size, sink.data_ptr(),
            4 * torch.cuda.get_device_properties(data.device).multi_processor_count,
            torch.cuda.current_stream().cuda_stream))

    @staticmethod
    def _check(error: int) -> None:
        if error:
            raise RuntimeError(f"CUDA error {error}")
