"""A Megatron checkpoint open for reading."""

from abc import ABC, abstractmethod
from argparse import Namespace

import torch

IGNORED_SUFFIX = "_extra_state"  # of Transformer Engine's modules: no weights


class Source(ABC):
    """A checkpoint's tensors, read one at a time, by tensor-parallel rank.

    Attributes:
        args: the arguments of the run that saved it; None if it keeps none.
        shapes: for each rank, name -> shape of its tensors; layers are numbered through.
    """

    args: Namespace | None
    shapes: list[dict[str, tuple[int, ...]]]

    @abstractmethod
    def read(self, name: str) -> list[torch.Tensor]:
        """Each rank's tensor of that name."""
