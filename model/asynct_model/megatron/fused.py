"""The Megatron tensors of a Hugging Face checkpoint."""

from collections.abc import Callable

import torch

from asynct_model.configuration import AsyncTConfig
from asynct_model.megatron.huggingface import TensorReader
from asynct_model.megatron.names import Entry, pieces

Progress = Callable[[int, int], None]  # tensors done, of how many


class FusedTensors:
    """Whole tensors, as one rank has them, each made when it is read.

    Attributes:
        pieces: their entries, in order.
        layers: how many layers the model has.
        parts: how many Hugging Face tensors they are made of.
        bytes: the size of those.

    Raises:
        ValueError: a tensor's type is none that a model is trained in, or tensors that make one
            differ in it.
    """

    def __init__(
        self, reader: TensorReader, config: AsyncTConfig, padded_vocab: int, progress: Progress
    ):
        self.pieces = pieces(config, padded_vocab)
        self.layers = config.num_hidden_layers
        self._reader = reader
        self._progress = progress
        self._read = 0
        entries = [entry for piece in self.pieces for entry in piece]
        self._total = len(entries)
        parts = [part for entry in entries for part in self._parts(entry)]
        self.parts = len(parts)
        self.bytes = sum(part.nbytes for part in parts)

    def read(self, entry: Entry) -> torch.Tensor:
        """An entry's tensor."""
        self._read += 1
        self._progress(self._read, self._total)
        return entry.layout.fuse([self._reader.read(part) for part in entry.parts])

    def meta(self, entry: Entry) -> torch.Tensor:
        """An entry's tensor without its values."""
        return entry.layout.fuse(self._parts(entry))

    def _parts(self, entry: Entry) -> list[torch.Tensor]:
        parts = [self._reader.meta(part) for part in entry.parts]
        check_dtypes(entry.parts, parts)
        return parts


def check_dtypes(names: tuple[str, ...], tensors: list[torch.Tensor]) -> None:
    """ValueError unless tensors that make one tensor are of one type."""
    for name, tensor in zip(names, tensors, strict=True):
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(
                f"{name} is {tensor.dtype}, {names[0]} {tensors[0].dtype}: they make one tensor"
            )
