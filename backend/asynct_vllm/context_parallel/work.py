"""A step's attention over the rows of all ranks, and over prompts that need none."""

import dataclasses

import torch
from vllm.distributed.parallel_state import GroupCoordinator

from asynct_kernels import GateParams
from asynct_vllm.metadata import LayerTensors, Work


@dataclasses.dataclass(frozen=True, eq=False)
class SharedWork:
    """The first tokens see keys that all ranks hold a share of; those after see this step's only.

    Attributes:
        partial: of the first tokens, over this rank's rows, for the query heads of all ranks.
        tokens: how many these are.
        fresh: of the other tokens, for this rank's heads.
    """

    partial: Work
    tokens: int
    fresh: Work

    def attend_over(
        self, ranks: GroupCoordinator, gate: GateParams, layer: LayerTensors
    ) -> None:
        """Writes the step's rows of the layer's output.

        A rank gathers the other ranks' queries, and gets the sum of what they all computed for its
        own heads. All ranks hold the same KV head.

        Args:
            gate: of the query heads of all ranks.
        """
        rows = slice(0, self.tokens)
        if self.tokens:
            query = ranks.all_gather(layer.query[rows].contiguous(), dim=1)
            partial = torch.empty_like(query)
            self.partial.attend(
                dataclasses.replace(layer, query=query, gate=gate, output=partial))
            layer.output[rows] = ranks.reduce_scatter(partial, dim=1)
        self.fresh.attend(layer)
