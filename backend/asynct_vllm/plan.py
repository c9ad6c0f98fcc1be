"""The plan of a step: what serves its attention, and why. Pure, of what the host knows."""

import dataclasses

import torch

from asynct_vllm.settings import Settings, TorchPath


@dataclasses.dataclass(frozen=True)
class StepShape:
    """A step as the host sees it: lengths in tokens, `max_seq_len` being an upper bound."""

    num_requests: int
    num_tokens: int
    max_query_len: int
    max_seq_len: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What serves a step's attention."""

    path: TorchPath
    bucket_tokens: int
    reason: str

    def __str__(self) -> str:
        return f"attention: {self.path}, {self.bucket_tokens} bucket tokens ({self.reason})"


def plan(shape: StepShape, device: torch.device, settings: Settings) -> Plan:
    """Chooses what serves a step of this shape. Pure: equal arguments give equal plans."""
    return Plan(
        path=settings.torch_path,
        bucket_tokens=settings.bucket_tokens,
        reason=(
            f"PyTorch on {device.type} as VLLM_HP1_TORCH_PATH says: {shape.num_requests} requests, "
            f"{shape.num_tokens} query tokens, at most {shape.max_query_len} of one request and "
            f"{shape.max_seq_len} keys"
        ),
    )
