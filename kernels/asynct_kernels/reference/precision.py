"""The precision that the elementwise operations compute in."""

import torch


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64 tensors (references), float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32
