"""Checks a checkpoint's tensors against `asynct_model.checkpoint` while vLLM loads them."""

import os
from collections.abc import Iterable, Iterator

import torch
from safetensors import SafetensorError

from asynct_model.checkpoint import check, expected_tensors, read_shapes
from asynct_model.configuration import AsyncTConfig


def checked(
    weights: Iterable[tuple[str, torch.Tensor]],
    config: AsyncTConfig,
    *,
    source: str,
    quantised: bool,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Passes (name, tensor) on; keeps back what does not fit, and names all of it at the end.

    Args:
        source: the checkpoint's directory or name, for messages.
        quantised: a matrix may then be stored as any tensors of its own (packed weights, scales),
            whose shapes the quantisation method knows; vLLM's loader refuses the unknown ones.

    Raises:
        ValueError: a file is cut short or damaged; or, at the end, a tensor was missing, unknown or
            of a wrong shape.
    """
    expected = expected_tensors(config)
    seen = {}
    for name, tensor in _readable(weights, source):
        weight = f"{name.rpartition('.')[0]}.weight"
        if quantised and weight in expected:
            seen[weight] = expected[weight]
        elif not quantised or name in expected:
            seen[name] = tuple(tensor.shape)
            if seen[name] != expected.get(name):
                continue
        yield name, tensor
    check(seen, config)


def _readable(
    weights: Iterable[tuple[str, torch.Tensor]], source: str
) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        yield from weights
    except SafetensorError as error:
        if os.path.isdir(source):
            read_shapes(source)  # raises with the file's name, which vLLM's error lacks
        raise ValueError(f"{source} is cut short or damaged: {error}") from error
