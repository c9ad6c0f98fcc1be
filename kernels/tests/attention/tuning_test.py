"""The kernels' own keywords: any allowed value is as accurate, others are refused."""

import pytest
import torch

from asynct_kernels import attend, explain, workspace_bytes
from asynct_kernels.attention.decode import schedule_decode
from oracle import assert_accurate, truth
from problems import Case, run
from under_test import arguments, runs

STEP = Case(name="step", query_lens=(1,) * 7, seq_lens=(0, 1, 249, 250, 512, 1025, 3000))
FEW = Case(name="few", query_lens=(1,) * 3, seq_lens=(1, 249, 600), heads=2, kv_heads=1,
           head_dim=32)


@runs([STEP, FEW], ["triton_decode"])
@pytest.mark.parametrize("splits", [1, 2, 3, 100])
def test_splits(seed, case, kernel, device, splits):
    facts = truth(case, device, seed)
    assert_accurate(run(kernel, arguments(kernel, facts.call) | dict(splits=splits)), facts)


@runs([STEP], ["hp1_decode_paged"])
@pytest.mark.parametrize("segment_keys", [16, 48, 256, 4096])
def test_segment_keys(seed, case, kernel, device, segment_keys):
    facts = truth(case, device, seed)
    given = arguments(kernel, facts.call) | dict(segment_keys=segment_keys)
    assert_accurate(run(kernel, given), facts)


@runs([STEP], ["hp1_decode_paged"])
def test_one_schedule_for_many_layers(seed, case, kernel, device):
    call = case.make(device)
    given = arguments(kernel, call) | dict(segment_keys=256)
    expected = run(kernel, given)
    workspace = torch.full((workspace_bytes(kernel, **given),), 0xFF, dtype=torch.uint8,
                           device=device)
    schedule_decode(
        workspace, call.query_start_loc, call.seq_lens, heads=case.heads, kv_heads=case.kv_heads,
        head_dim=case.head_dim, max_seq_len=given["max_seq_len"], segment_keys=256)
    for _ in range(3):
        output = attend(**given, kernel=kernel, workspace=workspace, scheduled=1)
        assert torch.equal(output, expected)


@runs([STEP], ["hp1_decode_paged"], on_cpu=False)
@pytest.mark.parametrize("tuning, message", [
    (dict(segment_keys=100), "segment_keys is 100: must be a multiple of 16"),
    (dict(segment_keys=1 << 20), "segment_keys is 1048576: must be .* at most 4096"),
    (dict(scheduled=2), "scheduled is 2: must be 1, or left out"),
])
def test_bad_values_are_refused(seed, case, kernel, device, tuning, message):
    given = arguments(kernel, case.make(device)) | tuning
    with pytest.raises(ValueError, match=message):
        attend(**given, kernel=kernel)
    assert len(explain(kernel, **given)) == 1


@runs([STEP], ["hp1_decode_paged"], on_cpu=False)
def test_a_schedule_is_wanted_with_its_workspace(seed, case, kernel, device):
    given = arguments(kernel, case.make(device)) | dict(scheduled=1)
    with pytest.raises(ValueError, match="workspace is None: must be given"):
        attend(**given, kernel=kernel)
