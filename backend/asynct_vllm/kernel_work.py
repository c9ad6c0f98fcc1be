"""A step's attention by kernels: one call for the decodes and one for the prefills."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import torch

from asynct_kernels import prepare
from asynct_kernels.attention import PreparedCall, PreparedNormRope
from asynct_vllm.metadata import LayerTensors


@dataclasses.dataclass(frozen=True, eq=False)
class KernelCall:
    """What `asynct_kernels.prepare` is told of some of the step's requests, alike in each layer.

    Attributes:
        kernel: its name.
        rows: the requests' query rows.
        block_table, query_start_loc, seq_lens: of these requests; the first row is query 0.
        max_query_len, max_seq_len: bounds, for every replay where the step is captured.
        workspace: scratch memory that lives as long as a captured graph; None: allocated once.
        tuning: the kernel's own keywords.
        fresh: whether the kernel reads this step's keys and values beside the cache.
        slot_mapping, positions: of the rows, for layers with a `norm_rope`.
        normalises: whether the kernel itself does such a layer's norms, RoPE and cache write.
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
    slot_mapping: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    normalises: bool = False

    @functools.cached_property
    def prepared(self) -> PreparedCall:
        """The call, checked by its first layer."""
        return prepare(
            self.block_table,
            self.query_start_loc,
            self.seq_lens,
            kernel=self.kernel,
            max_query_len=self.max_query_len,
            max_seq_len=self.max_seq_len,
            workspace=self.workspace,
            **self.tuning,
        )

    @functools.cached_property
    def prepared_norm_rope(self) -> PreparedNormRope:
        """What goes before it, for layers with a `norm_rope`."""
        return PreparedNormRope(self.positions, self.slot_mapping)

    def attend(
        self, layer: LayerTensors, query: torch.Tensor, beside: Mapping[str, object]
    ) -> None:
        """Writes these requests' rows of the layer's output, from what `query_and_keys` gave."""
        self.prepared.launch(
            query,
            layer.k_cache,
            layer.v_cache,
            layer.gate,
            out=layer.output[self.rows],
            k_scale=layer.k_scale,
            v_scale=layer.v_scale,
            **beside,
        )

    def query_and_keys(self, layer: LayerTensors) -> tuple[torch.Tensor, dict[str, object]]:
        """The rows' queries, and what the kernel is told beside the cache; keys that it does not
        write itself are there afterwards."""
        query = layer.query[self.rows]
        if layer.norm_rope is None and not self.fresh:
            return query, {}
        key, value = layer.key[self.rows], layer.value[self.rows]
        if self.normalises:
            return query, dict(key=key, value=value, slot_mapping=self.slot_mapping,
                               qk_norm_rope=layer.norm_rope)
        if layer.norm_rope is not None:
            query, key = self.prepared_norm_rope.launch(
                query, key, value, layer.norm_rope, layer.k_cache, layer.v_cache,
                k_scale=layer.k_scale, v_scale=layer.v_scale)
        return query, dict(key=key, value=value) if self.fresh else {}


@dataclasses.dataclass(frozen=True, eq=False)
class KernelWork:
    """The calls of one layer."""

    calls: Sequence[KernelCall]

    def attend(self, layer: LayerTensors) -> None:
        """See `asynct_vllm.metadata.Work`."""
        # A request may share blocks that another's tokens of this step fill: first all are written.
        told = [call.query_and_keys(layer) for call in self.calls]
        for call, (query, beside) in zip(self.calls, told):
            call.attend(layer, query, beside)
