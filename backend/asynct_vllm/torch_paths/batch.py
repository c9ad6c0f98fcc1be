"""One step's requests as the PyTorch paths take them."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Span:
    """A request's query rows `start` to `stop` and the blocks that hold the keys they may see."""

    request: int
    start: int
    stop: int
    num_blocks: int

    @property
    def num_rows(self) -> int:
        return self.stop - self.start


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """A step, on the host and on the device. R requests, T query tokens.

    Attributes:
        query_start: R + 1 first query rows, the last being T.
        max_seq_lens: R upper bounds of the sequence lengths, this step's tokens included.
        positions: `[T]` int64 on the device, the exact position of each query token in its
            sequence; -1 in a sequence of length 0.
        blocks: `[R, W]` int64 on the device, the block table with every entry past a sequence's
            last block replaced by block 0, so that any of it may be used as an index.
        block_size: tokens in a block.
    """

    query_start: tuple[int, ...]
    max_seq_lens: tuple[int, ...]
    positions: torch.Tensor
    blocks: torch.Tensor
    block_size: int

    @classmethod
    def build(
        cls,
        query_start: tuple[int, ...],
        max_seq_lens: tuple[int, ...],
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
        block_size: int,
    ) -> "Batch":
        """Computes the device's part from device tensors, without reading any of them back.

        Args:
            query_start, max_seq_lens, block_size: as the attributes.
            query_start_loc: `[R + 1]` int32.
            seq_lens: `[R]` int32, exact.
            block_table: `[R, width]` int32; entries past a sequence's last block hold anything.
        """
        device = seq_lens.device
        num_tokens = query_start[-1]
        # A request's last token stands at seq_len - 1, in row query_start_loc[r + 1] - 1.
        row_to_position = seq_lens - query_start_loc[1:]
        positions = torch.arange(num_tokens, device=device) + torch.repeat_interleave(
            row_to_position, query_start_loc.diff(), output_size=num_tokens
        )
        width = min(block_table.shape[1], _blocks_for(max(max_seq_lens), block_size))
        first_slots = torch.arange(width, device=device) * block_size
        owned = first_slots < seq_lens[:, None]
        blocks = torch.where(owned, block_table[:, :width], 0).long()
        return cls(query_start, max_seq_lens, positions, blocks, block_size)

    @property
    def num_tokens(self) -> int:
        return self.query_start[-1]

    def blocks_for(self, num_keys: int) -> int:
        """Blocks that hold a sequence's first `num_keys` keys: 1 to the table's width."""
        return min(_blocks_for(num_keys, self.block_size), self.blocks.shape[1])

    def spans(self) -> list[Span]:
        """Each request that has query rows, whole."""
        return [
            Span(request, start, stop, self.blocks_for(max_seq_len))
            for request, (start, stop, max_seq_len) in enumerate(
                zip(self.query_start, self.query_start[1:], self.max_seq_lens)
            )
            if stop > start
        ]


def _blocks_for(num_keys: int, block_size: int) -> int:
    return max(1, -(-num_keys // block_size))


def causal_mask(positions: torch.Tensor, num_keys: int) -> torch.Tensor:
    """Which of a sequence's first `num_keys` keys a query at each position may see.

    Returns:
        `positions.shape + [num_keys]` bool; nothing for position -1.
    """
    return torch.arange(num_keys, device=positions.device) <= positions[..., None]
