"""The attention paths in PyTorch, from one request at a time to a vectorised gather.

A path is a module with two functions. `prepare(batch, bucket_tokens)` runs once a step and returns
the work, indices included, that all layers share; `attend(query, k_cache, v_cache, gate, batch,
work, output)` runs in every layer. The gate's arithmetic is `asynct_kernels.reference.attention`'s,
in float32.

Padding adds keys with p = 0 to the sums, so a request's bits may depend on what it is padded with;
its values do so only to rounding.
"""

from types import ModuleType

from asynct_vllm.settings import TorchPath
from asynct_vllm.torch_paths import bucketed, gather, loop, padded

PATHS: dict[TorchPath, ModuleType] = {
    "loop": loop,
    "padded": padded,
    "bucketed": bucketed,
    "gather": gather,
}
