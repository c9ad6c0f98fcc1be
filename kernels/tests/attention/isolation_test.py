"""What a request does not own may hold anything, and never changes a bit of its output."""

import dataclasses
import math

import torch

from asynct_kernels import attend, workspace_bytes
from problems import Case, as_bytes, poison, run
from under_test import arguments, runs

POISONS = (math.nan, math.inf, -math.inf, 3e4)
STEPS = {
    "decode": dict(query_lens=(1,) * 9, seq_lens=(0, 1, 2, 15, 17, 64, 65, 300, 1030)),
    "prefill": dict(query_lens=(70, 1, 0, 40, 3), seq_lens=(70, 30, 0, 200, 1030)),
    "prompts": dict(query_lens=(70, 1, 0, 140, 33), seq_lens=(70, 1, 0, 140, 33)),
}
CASES = [Case(name=f"{step}-{kind}", padding=4, **lengths, **settings)
         for step, lengths in STEPS.items()
         for kind, settings in dict(
             usual={}, float8=dict(float8=True), block128=dict(block_size=128),
             D256=dict(head_dim=256), D64=dict(head_dim=64)).items()]


def repoisoned(call, value):
    """The call with `value` in every slot that no request owns, in padding, and other unused
    entries in the table."""
    case = call.case
    caches = [torch.empty_strided(c.shape, c.stride(), dtype=c.dtype, device=c.device)
              for c in (call.k_cache, call.v_cache)]
    block, slot = owned_slots(call)
    for copy, cache in zip(caches, (call.k_cache, call.v_cache)):
        poison(copy, value)
        as_bytes(copy)[block, slot] = as_bytes(cache)[block, slot]
    query = call.query.clone()
    query[call.tokens:] = value
    table = call.block_table.clone()
    for request, length in enumerate(case.seq_lens):
        table[request, -(-length // case.block_size):] = 123456789
    return dataclasses.replace(call, query=query, k_cache=caches[0], v_cache=caches[1],
                               block_table=table)


def owned_slots(call):
    """Block and slot of every key of every request."""
    blocks, slots = [], []
    for request, length in enumerate(call.case.seq_lens):
        position = torch.arange(length, device=call.query.device)
        blocks.append(call.block_table[request, position // call.case.block_size].long())
        slots.append(position % call.case.block_size)
    return torch.cat(blocks), torch.cat(slots)


@runs(CASES)
def test_poison_changes_no_bit(seed, case, kernel, device):
    call = case.make(device)
    expected = run(kernel, arguments(kernel, call))[:call.tokens]
    assert expected.isfinite().all() and expected.any()
    for value in POISONS:
        output = run(kernel, arguments(kernel, repoisoned(call, value)))[:call.tokens]
        assert torch.equal(output, expected), value


@runs(CASES)
def test_another_request_changes_no_bit(seed, case, kernel, device):
    """One request's own query, keys and values are NaN: only its own output may be."""
    call = case.make(device)
    expected = run(kernel, arguments(kernel, call))
    starts = call.query_start_loc.tolist()
    for request in {len(case.seq_lens) - 1, case.seq_lens.index(max(case.seq_lens[:-1]))}:
        ill = dataclasses.replace(call, query=call.query.clone(), k_cache=cloned(call.k_cache),
                                  v_cache=cloned(call.v_cache))
        position = torch.arange(case.seq_lens[request], device=device)
        block = call.block_table[request, position // case.block_size].long()
        for cache in (ill.k_cache, ill.v_cache):
            as_bytes(cache)[block, position % case.block_size] = as_bytes(
                torch.tensor(math.nan, device=device).to(cache.dtype))
        own = slice(starts[request], starts[request + 1])
        ill.query[own] = math.nan
        output = run(kernel, arguments(kernel, ill))
        others = torch.ones(call.tokens, dtype=torch.bool, device=device)
        others[own] = False
        assert torch.equal(output[:call.tokens][others], expected[:call.tokens][others])


def cloned(cache):
    copy = torch.empty_strided(cache.shape, cache.stride(), dtype=cache.dtype, device=cache.device)
    as_bytes(copy).copy_(as_bytes(cache))
    return copy


# What a batch-invariant caller fixes, that is otherwise chosen by the number of requests.
FIXED = {"hp1_decode_paged": dict(segment_keys=256)}


@runs(CASES[::5])
def test_a_request_has_the_same_bits_in_any_batch(seed, case, kernel, device):
    """Alone, and among others, under the same bounds."""
    call = case.make(device)
    given = arguments(kernel, call) | FIXED.get(kernel, {})
    expected = run(kernel, given)
    starts = call.query_start_loc.tolist()
    for request in range(len(case.seq_lens)):
        own = slice(starts[request], starts[request + 1])
        alone = given | dict(
            query=given["query"][own], block_table=call.block_table[request:request + 1],
            seq_lens=call.seq_lens[request:request + 1],
            query_start_loc=torch.tensor([0, own.stop - own.start], dtype=torch.int32,
                                         device=device))
        alone |= {name: given[name][own] for name in ("key", "value", "slot_mapping")
                  if name in given}
        assert torch.equal(run(kernel, alone), expected[own])


@runs(CASES[::5])
def test_one_workspace_for_calls_of_any_shape(seed, case, kernel, device):
    """A workspace as one call leaves it serves the next, of another shape."""
    other = dataclasses.replace(case, query_lens=case.query_lens[::-1][:3],
                                seq_lens=case.seq_lens[::-1][:3], heads=8, kv_heads=4)
    calls = [arguments(kernel, c.make(device)) for c in (case, other)]
    expected = [run(kernel, given) for given in calls]
    most = max(workspace_bytes(kernel, **given) for given in calls)
    workspace = torch.full((most,), 0xFF, dtype=torch.uint8, device=device)
    for _ in range(3):
        for given, bits in zip(calls, expected):
            output = attend(**given, kernel=kernel, workspace=workspace,
                            out=torch.full_like(bits, math.nan))
            assert torch.equal(output.nan_to_num(7.0), bits.nan_to_num(7.0))
