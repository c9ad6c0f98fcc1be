"""Every PyTorch path over the paged cache against unpaged float64 attention."""

import random
from typing import get_args

import pytest
import torch
from comparison import TOLERANCE, assert_matches, check, every_path, random_gate, random_step
from synthetic_step import LAYOUTS, Heads, SyntheticStep

from asynct_vllm.settings import Settings, TorchPath
from asynct_vllm.torch_paths import PATHS


def test_every_setting_has_its_path():
    assert tuple(PATHS) == get_args(TorchPath)


@every_path
@pytest.mark.parametrize("block_size", (16, 32, 64, 128))
def test_mixed_batches(path, block_size, seed):
    rng = random.Random(seed)
    for group in (1, 2, 4, 8):
        step = random_step(rng, block_size=block_size, heads=Heads(query=8, kv=8 // group))
        check(step, random_gate(8), Settings(path))


@every_path
@pytest.mark.parametrize("budget", (1, 40, 700, 6000))
def test_budgets(path, budget, seed):
    check(random_step(random.Random(seed)), random_gate(4), Settings(path, budget))


@every_path
@pytest.mark.parametrize("slack", (1, 15, 40))
def test_bounds_above_the_true_lengths(path, slack, seed):
    check(random_step(random.Random(seed), slack=slack), random_gate(4), Settings(path, 3000))


@every_path
@pytest.mark.parametrize("poison", (float("nan"), float("inf"), 3e38))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_and_poison(path, layout, poison, seed):
    step = random_step(random.Random(seed), layout=layout, poison=poison)
    check(step, random_gate(4), Settings(path, 3000))


@every_path
@pytest.mark.parametrize(
    "changes",
    (
        *({"window": window} for window in range(1, 9)),
        {"window": 4, "weights": (0.5, -0.25, 0.125, 1.0)},
        {"relu_pre": False},
        {"clip": (0.25, 0.75)},
        {"clip": (-0.5, float("inf"))},
        {"alpha": -12.0, "sigma": -0.5, "gamma": 1.5, "scale": 0.1},
    ),
    ids=str,
)
def test_gates(path, changes, seed):
    gate = random_gate(4, **changes)
    check(random_step(random.Random(seed), requests=5), gate, Settings(path))


@every_path
@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
def test_half_precision_costs_one_rounding(path, dtype, seed):
    step, gate = random_step(random.Random(seed), dtype=dtype), random_gate(4)
    output, reference = step.run(gate, Settings(path)).double(), step.reference(gate)
    bound = reference.abs() * torch.finfo(dtype).eps / 2 + TOLERANCE * reference.abs().max()
    assert ((output - reference).abs() <= bound).all()


@pytest.mark.parametrize("path", ("padded", "bucketed", "gather"))
def test_paths_agree_with_the_loop(path, seed):
    step, gate = random_step(random.Random(seed), requests=16), random_gate(4)
    assert_matches(step.run(gate, Settings(path)), step.run(gate, Settings("loop")).double())


@every_path
def test_a_request_is_the_same_whatever_else_is_in_the_batch(path, seed):
    step, gate = random_step(random.Random(seed), requests=12), random_gate(4)
    together = step.split_rows(step.run(gate, Settings(path, 2000)))
    for request in range(12):
        alone = step.only(request).run(gate, Settings(path, 2000))
        assert_matches(alone, together[request].double())


@every_path
@pytest.mark.parametrize("budget", (1, 131072))
def test_requests_without_tokens_or_keys(path, budget, seed):
    """Padded rows: no query row at all, or query rows of a sequence of length 0."""
    step, gate = SyntheticStep.make((3, 40, 0, 1), (14, 0, 0, 33)), random_gate(4)
    step.common.seq_lens[1] = 0
    step.common.seq_lens_cpu_upper_bound[1] = 0
    step.common.slot_mapping[3:43] = -1
    output, reference = step.run(gate, Settings(path, budget)), step.reference(gate)
    reference[3:43] = 0
    assert_matches(output, reference)
    assert (output[3:43] == 0).all()


@every_path
def test_repeats_bit_for_bit(path, seed):
    step, gate = random_step(random.Random(seed), requests=12), random_gate(4)
    first = step.run(gate, Settings(path, 2000))
    for _ in range(5):
        assert torch.equal(step.run(gate, Settings(path, 2000)), first)
