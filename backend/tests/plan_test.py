"""The plan: pure, frozen, and printed with its reason."""

import dataclasses
from typing import get_args

import pytest
import torch

from asynct_vllm.plan import StepShape, plan
from asynct_vllm.settings import Settings, TorchPath

SHAPE = StepShape(num_requests=16, num_tokens=530, max_query_len=512, max_seq_len=2048)
CPU = torch.device("cpu")


@pytest.mark.parametrize("path", get_args(TorchPath))
def test_serves_by_the_path_that_is_set(path):
    chosen = plan(SHAPE, CPU, Settings(path, 4096))
    assert (chosen.path, chosen.bucket_tokens) == (path, 4096)


def test_pure():
    assert plan(SHAPE, CPU, Settings()) == plan(SHAPE, CPU, Settings())
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(SHAPE, CPU, Settings()).path = "loop"


def test_prints_its_choice_and_reason():
    text = str(plan(SHAPE, CPU, Settings("padded", 4096)))
    for part in ("padded", "4096", "cpu", "VLLM_HP1_TORCH_PATH", "16 requests", "530 query tokens"):
        assert part in text
