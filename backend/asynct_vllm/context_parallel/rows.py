"""A step's tokens in a rank's rows: where each is written, and how many rows each sees."""

import dataclasses

import torch

from asynct_vllm.context_parallel.shard import Shard
from asynct_vllm.kv_cache import NO_SLOT


@dataclasses.dataclass(frozen=True, eq=False)
class StepRows:
    """What the layers need of a step, in memory that captured graphs keep. M tokens, S requests.

    Attributes:
        shard: the rank's.
        block_rows: rows of a cache block.
        lengths: [S] int32, rows of each request, those of this step's tokens included.
        visible: [M] int32, rows up to each token's own position; 0 past the last token.
        slots: [M] int64, where each token's key goes, `block * block_rows + row`; NO_SLOT where the
            rank does not store it, and past the last token.
        owned: [M] bool, whether its value goes there as well; a halo key's is zero.
        requests: [M] int64, whose token each is.
    """

    shard: Shard
    block_rows: int
    lengths: torch.Tensor
    visible: torch.Tensor
    slots: torch.Tensor
    owned: torch.Tensor
    requests: torch.Tensor

    @classmethod
    def make(
        cls, shard: Shard, block_rows: int, most_tokens: int, most_requests: int,
        device: torch.device,
    ) -> "StepRows":
        """For steps of up to `most_tokens` tokens of up to `most_requests` requests."""
        return cls(
            shard, block_rows,
            lengths=torch.zeros(most_requests, dtype=torch.int32, device=device),
            visible=torch.zeros(most_tokens, dtype=torch.int32, device=device),
            slots=torch.full((most_tokens,), NO_SLOT, device=device),
            owned=torch.zeros(most_tokens, dtype=torch.bool, device=device),
            requests=torch.zeros(most_tokens, dtype=torch.int64, device=device))

    def fill(
        self,
        tokens: int,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
    ) -> None:
        """Lays out a step; waits for nothing.

        Args:
            tokens: of this step, padding included.
            query_start_loc: [R + 1] int32.
            seq_lens: [R] int32, tokens, this step's included; 0 for padding.
            block_table: [R, W] int32; what a request does not own may hold anything.
        """
        starts, ends = query_start_loc[:-1], query_start_loc[1:]
        token = torch.arange(tokens, device=ends.device)
        requests = torch.searchsorted(ends, token, right=True, out_int32=True)
        requests = requests.clamp(max=ends.shape[0] - 1).long()
        lengths = (seq_lens - ends)[requests] + token + 1
        lengths = torch.where((token < ends[-1]) & (lengths > 0), lengths, 0)
        position = lengths - 1
        visible = self.shard.rows(lengths)
        row = (visible - 1).clamp(min=0)
        stored = self.shard.stores(position)
        # Only an entry that the request owns is used, whatever the others hold.
        block = block_table[requests, (row // self.block_rows).clamp(max=block_table.shape[1] - 1)]
        slots = block.long() * self.block_rows + row % self.block_rows

        self.lengths[: ends.shape[0]] = self.shard.rows(torch.where(ends > starts, seq_lens, 0))
        self._set(self.visible, visible, 0)
        self._set(self.slots, torch.where(stored, slots, NO_SLOT), NO_SLOT)
        self._set(self.owned, self.shard.owns(position), False)
        self._set(self.requests, requests, 0)

    @staticmethod
    def _set(buffer: torch.Tensor, values: torch.Tensor, rest: int) -> None:
        buffer[: values.shape[0]] = values
        buffer[values.shape[0] :] = rest
