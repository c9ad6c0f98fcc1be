"""Decodes of several query tokens, as speculation has them, as one decode a token.

A token of a request sees the keys up to its own: it is a request with the same blocks and a length
of its own. So a kernel for one query a request serves 1 + k of them, under a captured graph too.
"""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True, eq=False)
class DecodeRows:
    """A request for each row, in memory that captured graphs keep.

    Attributes:
        query_start_loc: [N + 1] int32, one query each.
        seq_lens: [N] int32, keys up to the row's own token.
        block_table: [N, W] int32.
    """

    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor

    @classmethod
    def make(cls, most: int, width: int, device: torch.device) -> "DecodeRows":
        """For steps of up to `most` rows and block tables of `width` entries."""
        return cls(*(torch.empty(shape, dtype=torch.int32, device=device)
                     for shape in (most + 1, most, (most, width))))

    def fill(
        self,
        rows: int,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
        block_table: torch.Tensor,
    ) -> "DecodeRows":
        """Lays out a step, all of it, since vLLM's sleep forgets what was there; waits for nothing.

        Args:
            rows: N of this step; those past the last query are padding, of length 0.
            query_start_loc: [R + 1] int32.
            seq_lens: [R] int32, this step's tokens included.
            block_table: [R, W] int32.

        Returns:
            The first `rows` rows.
        """
        step = DecodeRows(
            self.query_start_loc[:rows + 1], self.seq_lens[:rows], self.block_table[:rows])
        torch.arange(rows + 1, out=step.query_start_loc)
        row, ends = step.query_start_loc[:-1], query_start_loc[1:]
        request = torch.searchsorted(ends, row, right=True).clamp_(max=ends.shape[0] - 1)
        lengths = (seq_lens[request] - ends[request] + row + 1).clamp_(min=0)
        torch.mul(lengths, row < ends[-1], out=step.seq_lens)
        torch.index_select(block_table, 0, request, out=step.block_table)
        return step
