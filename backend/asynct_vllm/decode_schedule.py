"""What the paged decode kernel is given once a step, for all layers: the list of its segments."""

import dataclasses
from collections.abc import Callable

import torch

from asynct_kernels.attention.decode import prepare_schedule, schedule_bytes


@dataclasses.dataclass(frozen=True)
class DecodeScheduler:
    """Lists the segments of a step's decodes on the device, in memory that captured graphs keep.

    Attributes:
        workspace: uint8, for as many requests as a step may have.
    """

    heads: int
    kv_heads: int
    head_dim: int
    max_seq_len: int
    workspace: torch.Tensor

    @classmethod
    def make(
        cls, *, heads: int, kv_heads: int, head_dim: int, max_requests: int, max_seq_len: int,
        device: torch.device,
    ) -> "DecodeScheduler":
        """For steps of up to `max_requests` decodes of up to `max_seq_len` keys."""
        most = schedule_bytes(max_requests, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
                              max_seq_len=max_seq_len)
        workspace = torch.empty(most, dtype=torch.uint8, device=device)
        return cls(heads, kv_heads, head_dim, max_seq_len, workspace)

    def prepare(
        self, query_start_loc: torch.Tensor, seq_lens: torch.Tensor
    ) -> tuple[Callable[[], None], dict[str, int]]:
        """For steps whose requests these tensors hold, some of them graph padding.

        Args:
            query_start_loc: [R + 1] int32.
            seq_lens: [R] int32.

        Returns:
            What fills the workspace for a step, and the tuning of its layers' calls.
        """
        launch = prepare_schedule(
            self.workspace, query_start_loc, seq_lens, heads=self.heads, kv_heads=self.kv_heads,
            head_dim=self.head_dim, max_seq_len=self.max_seq_len)
        return launch, {"scheduled": 1}
