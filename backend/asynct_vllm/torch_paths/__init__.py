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

import torch

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

    def attend(self, layer: LayerTensors) -> None:
        """See `asynct_vllm.metadata.Work`."""
        query, output = layer.query, layer.output
        if layer.k_scale is not None:
            # The scores are linear in K and the output is in V, so that scales need no other copy.
            query = _scaled(query, layer.k_scale)
            output = torch.empty_like(query)
        PATHS[self.path].attend(query, layer.k_cache, layer.v_cache, layer.gate, self.batch,
                                self.prepared, output)
        if layer.v_scale is not None:
            rows = slice(self.batch.num_tokens)
            layer.output[rows] = _scaled(output[rows], layer.v_scale).to(layer.output.dtype)


def _scaled(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`x` [T, H, D] in float32 times the scale of each head's KV head."""
    return x.float() * scale.repeat_interleave(x.shape[1] // scale.shape[0])[:, None]
