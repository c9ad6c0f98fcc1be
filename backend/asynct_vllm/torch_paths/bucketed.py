"""Requests of similar length padded together: the padded path, bucket by bucket."""

import torch

from asynct_kernels import GateParams
from asynct_vllm.torch_paths import padded
from asynct_vllm.torch_paths.batch import Batch, Span


def prepare(batch: Batch, bucket_tokens: int) -> list[list[Span]]:
    """Buckets of requests in order of length, each of at most `bucket_tokens` padded keys.

    A request longer than the budget has a bucket of its own.
    """
    buckets: list[list[Span]] = []
    for span in sorted(batch.spans(), key=lambda span: span.num_blocks):
        # Sorted, so this request is the longest of its bucket.
        num_keys = span.num_blocks * batch.block_size
        if buckets and (len(buckets[-1]) + 1) * num_keys <= bucket_tokens:
            buckets[-1].append(span)
        else:
            buckets.append([span])
    return buckets


def attend(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    gate: GateParams,
    batch: Batch,
    prepared: list[list[Span]],
    output: torch.Tensor,
) -> None:
    """Writes `output` [T, H, D] for `query` [T, H, D], bucket by bucket."""
    for bucket in prepared:
        padded.attend(query, k_cache, v_cache, gate, batch, bucket, output)
