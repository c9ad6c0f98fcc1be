"""Which positions of a sequence a rank stores, and in which of its rows. Pure index arithmetic."""

import dataclasses

import torch
from vllm.config import VllmConfig


@dataclasses.dataclass(frozen=True)
class Shard:
    """A rank's share of every sequence.

    Positions repeat with a period of `ranks * interleave`; in each a rank stores one stretch, the
    halo and then its run. Where the halo would reach the rank's own run before, there is no gap,
    and the rank stores every position.

    Attributes:
        rank, ranks: which of how many.
        interleave: I, neighbouring positions that one rank owns.
        window: K of the gate.
    """

    rank: int
    ranks: int
    interleave: int
    window: int

    @property
    def halo(self) -> int:
        """Rows before a run whose keys are other ranks'."""
        return min(self.window - 1, (self.ranks - 1) * self.interleave)

    def block_rows(self, block_size: int) -> int:
        """Rows of a cache block that holds `block_size * ranks` tokens of a sequence."""
        return block_size // self.interleave * self._stretch

    def rows(self, tokens: torch.Tensor) -> torch.Tensor:
        """Rows that the first `tokens` positions of a sequence fill; of any shape, of integers."""
        return self._filled(tokens - self._start) - self._filled(torch.tensor(-self._start))

    def most_rows(self, tokens: int) -> int:
        """An upper bound of `rows`, for the host."""
        return min(tokens, -(-tokens // self._period) * self._stretch)

    def stores(self, positions: torch.Tensor) -> torch.Tensor:
        """Whether a position has a row; bool."""
        return (positions >= 0) & ((positions - self._start) % self._period < self._stretch)

    def owns(self, positions: torch.Tensor) -> torch.Tensor:
        """Whether a position's value is in its row; bool."""
        return positions // self.interleave % self.ranks == self.rank

    @property
    def _start(self) -> int:
        """Where a stretch begins; before position 0 there are no keys."""
        return self.rank * self.interleave - self.halo

    @property
    def _period(self) -> int:
        return self.ranks * self.interleave

    @property
    def _stretch(self) -> int:
        return self.halo + self.interleave

    def _filled(self, after_start: torch.Tensor) -> torch.Tensor:
        rounds = after_start.div(self._period, rounding_mode="floor")
        rest = after_start - rounds * self._period
        return rounds * self._stretch + rest.clamp(max=self._stretch)


def shard_of(vllm_config: VllmConfig, rank: int, window: int) -> Shard:
    """The share of decode context parallel rank `rank`."""
    parallel = vllm_config.parallel_config
    return Shard(rank, parallel.decode_context_parallel_size, parallel.cp_kv_cache_interleave_size,
                 window)
