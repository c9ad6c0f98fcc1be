"""A step's attention by kernels: one call for the decodes and one for the prefills."""

import dataclasses
from collections.abc import Mapping, Sequence

import torch

from asynct_kernels import attend
from asynct_vllm.metadata import LayerTensors


@dataclasses.dataclass(frozen=True, eq=False)
class KernelCall:
    """What `asynct_kernels.attend` is told of some of the step's requests, the same in each layer.

    Attributes:
        kernel: its name.
        rows: the requests' query rows.
        block_table, query_start_loc, seq_lens: of these requests; the first row is query 0.
        max_query_len, max_seq_len: bounds, for every replay where the step is captured.
        workspace: scratch memory that lives as long as a captured graph; None: allocated by call.
        tuning: the kernel's own keywords.
        fresh: whether the kernel reads this step's keys and values as the projection wrote them.
    """

    kernel: str
    rows: slice
    block_table: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    max_query_len: int
    max_seq_len: int
    workspace: torch.Tensor | None = None
    tuning: Mapping[str, int] = dataclasses.field(default_factory=dict)
    fresh: bool = False

    def attend(self, layer: LayerTensors) -> None:
        """Writes these requests' rows of the layer's output."""
        attend(
            layer.query[self.rows],
            layer.k_cache,
            layer.v_cache,
            self.block_table,
            self.query_start_loc,
            self.seq_lens,
            layer.gate,
            kernel=self.kernel,
            out=layer.output[self.rows],
            max_query_len=self.max_query_len,
            max_seq_len=self.max_seq_len,
            workspace=self.workspace,
            k_scale=layer.k_scale,
            v_scale=layer.v_scale,
            key=layer.key[self.rows] if self.fresh else None,
            value=layer.value[self.rows] if self.fresh else None,
            **self.tuning,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class KernelWork:
    """The calls of one layer."""

    calls: Sequence[KernelCall]

    def attend(self, layer: LayerTensors) -> None:
        """See `asynct_vllm.metadata.Work`."""
        for call in self.calls:
            call.attend(layer)
