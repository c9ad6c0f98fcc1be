"""Attention in PyTorch, in four ways.

Each path is a module of two functions. `prepare(batch, bucket_tokens)` runs once a step and returns
what all layers share, indices included; `attend(query, k_cache, v_cache, gate, batch, prepared,
output)` runs in every layer. The gate's arithmetic is `asynct_kernels.reference.attention`'s, in float32.

Padding adds keys with p = 0 to the sums, so a request's bits may depend on what it is padded with;
its values do so only to rounding.
"""

import dataclasses
from types import ModuleType
from typing import Any

from asynct_vllm.metadata import LayerTensors
from asynct_vllm.settings import TorchPath
from asynct_vllm.torch_paths import bucketed, gather, loop, padded
from asynct_vllm.torch_paths.batch import Batch

PATHS: dict[TorchPath, ModuleType] = {
    "loop": loop,
    "padded": padded,
    "bucketed": bucketed,
    "gather": gather,
}


@dataclasses.dataclass(frozen=True, eq=False)
class TorchWork:
    """A step's requests and what the path's `prepare` made of them."""

    path: TorchPath
    batch: Batch
    prepared: Any

    @classmethod
    def prepare(cls, path: TorchPath, batch: Batch, bucket_tokens: int) -> "TorchWork":
        return cls(path, batch, PATHS[path].prepare(batch, bucket_tokens))

    def served(self) -> list[tuple[str, slice]]:
        """See `asynct_vllm.metadata.Work`."""
        return [(self.path, slice(0, self.batch.num_tokens))]

    def attend(self, layer: LayerTensors) -> None:
        """See `asynct_vllm.metadata.Work`."""
        PATHS[self.path].attend(layer.query, layer.k_cache, layer.v_cache, layer.gate, self.batch,
                                self.prepared, layer.output)
