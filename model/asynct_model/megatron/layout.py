"""How Megatron lays a tensor out: what is fused into it, and how tensor-parallel ranks share it.

Layouts only view, cut and concatenate, so they give shapes as well: apply them to meta tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad


@dataclass(frozen=True)
class Layout:
    """One tensor, unfused; the base of the fused ones.

    Attributes:
        axis: what ranks cut the tensor along; None: each rank has all of it.
        blocks: equal parts along the axis, each cut by itself (Megatron's partition_stride).
    """

    axis: int | None = None
    blocks: int = 1

    def fuse(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The whole Megatron tensor, as one rank has it, of Hugging Face's."""
        (part,) = parts
        return part

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Hugging Face's tensors of the whole Megatron tensor; `fuse` backwards."""
        return [tensor]

    def shard(self, tensor: torch.Tensor, ranks: int) -> list[torch.Tensor]:
        """What each of `ranks` ranks holds of the whole tensor."""
        if self.axis is None:
            return [tensor] * ranks
        cuts = tensor.chunk(self.blocks * ranks, self.axis)
        return [_joined(cuts[rank::ranks], self.axis) for rank in range(ranks)]

    def merge(self, shards: Sequence[torch.Tensor]) -> torch.Tensor:
        """The whole tensor, of all ranks' shards in order; `shard` backwards.

        Raises:
            ValueError: ranks that should hold the same tensor do not.
        """
        if self.axis is None:
            for rank, shard in enumerate(shards):
                if not same_bits(shard, shards[0]):
                    raise ValueError(f"tensor-parallel ranks 0 and {rank} must hold the same")
            return shards[0]
        cuts = [shard.chunk(self.blocks, self.axis) for shard in shards]
        return _joined([cut[block] for block in range(self.blocks) for cut in cuts], self.axis)


@dataclass(frozen=True)
class FusedQKV(Layout):
    """Query, key and value projections: for each key-value head, its queries, its key, its value.

    Attributes:
        groups: key-value heads.
        queries: query heads of each.
    """

    axis: int = 0
    groups: int = 1
    queries: int = 1

    def fuse(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        by_head = [
            part.unflatten(0, (self.groups, heads, -1)) for part, heads in zip(parts, self._heads)
        ]
        return torch.cat(by_head, 1).flatten(0, 2)

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        by_head = tensor.unflatten(0, (self.groups, sum(self._heads), -1))
        return [part.flatten(0, 2) for part in by_head.split(self._heads, 1)]

    @property
    def _heads(self) -> tuple[int, int, int]:
        return self.queries, 1, 1


@dataclass(frozen=True)
class FusedGateUp(Layout):
    """Gate and up projections, one after the other; each rank has its rows of both."""

    axis: int = 0
    blocks: int = 2

    def fuse(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat(tuple(parts))

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return list(tensor.chunk(2))


@dataclass(frozen=True)
class PaddedVocabulary(Layout):
    """A row for each token, and rows of zeros that fill up `padded` rows.

    Attributes:
        tokens: rows that Hugging Face's tensor has.
        padded: rows that Megatron's has.
    """

    axis: int = 0
    tokens: int = 1
    padded: int = 1

    def fuse(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        (part,) = parts
        return pad(part, (0, 0, 0, self.padded - self.tokens))

    def split(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor[: self.tokens]]


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of a shape hold the same bits: NaN is itself, and 0 is not -0."""
    return torch.equal(*(tensor.contiguous().view(torch.uint8) for tensor in (one, other)))


def _joined(tensors: Sequence[torch.Tensor], axis: int) -> torch.Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tuple(tensors), axis)
