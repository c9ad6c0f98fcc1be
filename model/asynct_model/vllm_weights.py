"""Holds a stream of checkpoint tensors to the list of `asynct_model.checkpoint` while vLLM loads it."""

from collections.abc import Iterable, Iterator

import torch

from asynct_model.checkpoint import check, expected_tensors
from asynct_model.configuration import AsyncTConfig


def checked(
    weights: Iterable[tuple[str, torch.Tensor]], config: AsyncTConfig, quantised: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """Passes (name, tensor) on; keeps back what does not fit, and names all of it at the end.

    Args:
        quantised: a matrix may then be stored as any tensors of its own (packed weights, scales),
            whose shapes the quantisation method knows; vLLM's loader refuses the unknown ones.

    Raises:
        ValueError: at the end, if a tensor was missing, unknown or of a wrong shape.
    """
    expected = expected_tensors(config)
    seen = {}
    for name, tensor in weights:
        weight = f"{name.rpartition('.')[0]}.weight"
        if quantised and weight in expected:
            seen[weight] = expected[weight]
        elif not quantised or name in expected:
            seen[name] = tuple(tensor.shape)
            if seen[name] != expected.get(name):
                continue
        yield name, tensor
    check(seen, config)
