"""reshape_and_cache against plain indexing, and the gather of pages against what they hold."""

import math

import pytest
import torch
from caches import FLOAT8, GUARD, LARGEST, bits, guarded_caches, stored

from asynct_kernels import _C, GateParams, cuda, reshape_and_cache
from asynct_kernels.attention import launch
from asynct_kernels.attention.problem import AttentionProblem

CACHE = torch.zeros(3, 16, 2, 64)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def fresh_rows(tokens, heads, size, dtype, device, spare=0):
    """Key and value as views of one projection's rows, [tokens, heads, size] each."""
    fused = torch.randn(tokens, 3 * heads * size + spare, device=device) * 40
    return (part.unflatten(-1, (heads, size))
            for part in fused.to(dtype)[:, spare:].split(heads * size, dim=-1)[:2])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scales", [None, "tensor", "head"])
@pytest.mark.parametrize("size, spare", [(128, 0), (64, 16), (256, 0), (128, 1), (40, 0), (5, 2)])
@pytest.mark.parametrize("block_size", [16, 7])
def test_named_slots_and_nothing_else(seed, device, dtype, scales, size, spare, block_size):
    heads, blocks, tokens = 3, 9, 20
    cache_dtype = dtype if scales is None else FLOAT8
    whole, k_cache, v_cache = guarded_caches(
        (blocks, block_size, heads, size), cache_dtype, device, spare)
    key, value = fresh_rows(tokens + 4, heads, size, dtype, device, spare)
    slots = torch.randperm(blocks * block_size, device=device)[:tokens]
    slots[torch.rand(tokens, device=device) < 0.2] = -1
    factors = {}
    if scales is not None:
        count = 1 if scales == "tensor" else heads
        factors = {name: torch.rand(count, device=device) + 0.25 for name in ("k_scale", "v_scale")}
    reshape_and_cache(key, value, k_cache, v_cache, slots, **factors)

    wanted, wanted_k, wanted_v = guarded_caches(
        (blocks, block_size, heads, size), cache_dtype, device, spare)
    kept = slots >= 0
    place = slots[kept] // block_size, slots[kept] % block_size
    for cache, rows, name in ((wanted_k, key, "k_scale"), (wanted_v, value, "v_scale")):
        bits(cache)[place] = bits(stored(rows[:tokens][kept], factors.get(name)).contiguous())
    assert torch.equal(bits(whole), bits(wanted))


@pytest.mark.parametrize("device", DEVICES)
def test_float8_saturates_and_keeps_nan(device):
    values = [math.inf, -math.inf, 1e30, 449.0, 464.0, -1000.0, math.nan, 2.0**-10, 0.0]
    rows = torch.tensor(values, device=device).bfloat16().expand(2, 1, -1)
    _, k_cache, v_cache = guarded_caches((1, 16, 1, len(values)), FLOAT8, device)
    one = torch.ones(1, device=device)
    reshape_and_cache(rows, rows, k_cache, v_cache, torch.tensor([3, 5], device=device), one, one)
    wanted = [LARGEST, -LARGEST, LARGEST, LARGEST, LARGEST, -LARGEST, math.nan, 0.0, 0.0]
    for cache in (k_cache, v_cache):
        found = cache[0, 3, 0].float().cpu()
        assert torch.equal(found.isnan(), torch.tensor(wanted).isnan())
        assert torch.equal(found.nan_to_num(), torch.tensor(wanted).nan_to_num())


@pytest.mark.parametrize("device", DEVICES)
def test_no_tokens(device):
    whole, k_cache, v_cache = guarded_caches((2, 16, 1, 64), torch.float16, device)
    key, value = fresh_rows(3, 1, 64, torch.float16, device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    reshape_and_cache(key, value, k_cache, v_cache, none)
    assert (whole.view(torch.uint8) == GUARD).all()


@pytest.mark.parametrize("changes, error, message", [
    (dict(key=torch.zeros(4, 128).half()), ValueError, r"key has shape \[4, 128\]: must be \[T, H"),
    (dict(key=torch.zeros(4, 2, 64)), TypeError, "key has dtype torch.float32"),
    (dict(key=torch.zeros(4, 64, 2).half().mT), ValueError, r"key has strides \[128, 1, 2\]"),
    (dict(value=torch.zeros(4, 2, 64).bfloat16()), TypeError, "value has dtype torch.bfloat16 and"),
    (dict(value=torch.zeros(5, 2, 64).half()), ValueError, r"value has shape \[5, 2, 64\]"),
    (dict(k_cache=torch.zeros(3, 16, 1, 64).half(), v_cache=torch.zeros(3, 16, 1, 64).half()),
     ValueError, r"k_cache has shape \[3, 16, 1, 64\]: must be \[3, 16, 2, 64\]"),
    (dict(v_cache=torch.zeros(2, 16, 2, 64).half()), ValueError, r"v_cache has shape \[2"),
    (dict(k_cache=CACHE), TypeError, "k_cache has dtype torch.float32"),
    (dict(slot_mapping=torch.zeros(4, dtype=torch.int32)), TypeError, "slot_mapping has dtype"),
    (dict(slot_mapping=torch.arange(5)), ValueError, "slot_mapping has 5 slots: must have at most"),
    (dict(slot_mapping=None), TypeError, "slot_mapping is a NoneType"),
    (dict(k_scale=torch.ones(1)), ValueError, "k_scale is given"),
    (dict(k_cache=CACHE.to(FLOAT8), v_cache=CACHE.to(FLOAT8)), TypeError, "k_scale is a NoneType"),
    (dict(k_cache=CACHE.to(FLOAT8), v_cache=CACHE.to(FLOAT8), k_scale=torch.ones(1),
          v_scale=torch.ones(3)),
     ValueError, r"v_scale has shape \[3\]: must be \[1\] or \[2\]"),
])
def test_bad_arguments_are_named(changes, error, message):
    given = dict(key=torch.zeros(4, 2, 64).half(), value=torch.zeros(4, 2, 64).half(),
                 k_cache=CACHE.half(), v_cache=CACHE.half(), slot_mapping=torch.arange(4))
    with pytest.raises(error, match=message):
        reshape_and_cache(**given | changes)


def test_operation_is_well_formed():
    key, value = fresh_rows(4, 2, 64, torch.float16, "cpu")
    _, k_cache, v_cache = guarded_caches((3, 16, 2, 64), torch.float16, "cpu")
    torch.library.opcheck(torch.ops.asynct.reshape_and_cache.default, (
        key.contiguous(), value.contiguous(), k_cache.contiguous(), v_cache.contiguous(),
        torch.tensor([3, -1, 40, 20])))


@pytest.mark.gpu
def test_offsets_past_32_bits(seed):
    """A cache of more than 2^31 elements, and of more than 2^32 bytes."""
    blocks = 2**31 // (16 * 128) + 3
    k_cache, v_cache = torch.zeros(2, blocks, 16, 1, 128, dtype=torch.bfloat16, device="cuda")
    key, value = fresh_rows(3, 1, 128, torch.bfloat16, "cuda")
    slots = torch.tensor([5, 16 * (blocks // 2), 16 * blocks - 1], device="cuda")
    reshape_and_cache(key, value, k_cache, v_cache, slots)
    for cache, rows in ((k_cache, key), (v_cache, value)):
        assert torch.equal(cache.view(-1, 1, 128)[slots], rows)
        assert cache.view(-1, 128)[:: 2**10].count_nonzero() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("float8", [False, True])
@pytest.mark.parametrize("size, block_size", [(64, 16), (128, 48), (256, 7)])
@pytest.mark.parametrize("multiple", [1, 64])
def test_gather_copies_what_requests_own(seed, dtype, float8, size, block_size, multiple):
    heads, lengths = 2, [0, 1, 130, 63, 64, 65, 15]
    longest = max(lengths)
    per_request = -(-longest // block_size)
    whole, k_cache, v_cache = guarded_caches(
        (len(lengths) * per_request + 2, block_size, heads, size), FLOAT8 if float8 else dtype,
        "cuda", 16)
    owned = torch.arange(per_request * block_size) < torch.tensor(lengths)[:, None]
    table = (torch.randperm(len(whole))[: len(lengths) * per_request]
             .view(len(lengths), per_request).int().cuda())
    pages = table.long().cpu()[:, :, None].expand(-1, -1, block_size).flatten(1)[owned]
    slots = torch.arange(block_size).repeat(len(lengths), per_request)[owned]
    for cache in (k_cache, v_cache):
        bits(cache).fill_(0x7F if float8 else -1)  # NaN
        values = torch.randn(len(pages), heads, size).to(cache.dtype).cuda()
        bits(cache)[pages.cuda(), slots.cuda()] = bits(values)
    unused = torch.arange(per_request) >= -(-torch.tensor(lengths) // block_size)[:, None]
    table[unused.cuda()] = 2**31 - 1

    one = torch.full((1,), 3.0, device="cuda") if float8 else None  # not applied
    problem = AttentionProblem(
        query=torch.zeros(len(lengths), heads, size, dtype=dtype, device="cuda"), k_cache=k_cache,
        v_cache=v_cache, block_table=table,
        query_start_loc=torch.arange(len(lengths) + 1, dtype=torch.int32, device="cuda"),
        seq_lens=torch.tensor(lengths, dtype=torch.int32, device="cuda"),
        gate=GateParams(*torch.ones(3, heads, device="cuda"), scale=1.0), max_query_len=1,
        max_seq_len=longest, k_scale=one, v_scale=one)
    rows = -(-longest // multiple) * multiple
    copies = torch.full((2, len(lengths), rows, heads, size), 7.0, dtype=dtype, device="cuda")
    _C.gather_pages(params=launch.attention_params(problem, problem.query),
                    key=copies[0].data_ptr(), value=copies[1].data_ptr(), request_rows=rows,
                    row_multiple=multiple, stream=cuda.current_stream(copies))
    for copy, cache in zip(copies, (k_cache, v_cache)):
        for request, length in enumerate(lengths):
            padded = -(-length // multiple) * multiple
            position = torch.arange(length, device="cuda")
            block = table[request, position // block_size].long()
            wanted = bits(cache)[block, position % block_size].view(cache.dtype).to(dtype)
            assert torch.equal(copy[request, :length], wanted)
            assert (copy[request, length:padded] == 0.0).all()
            assert (copy[request, padded:] == 7.0).all()
