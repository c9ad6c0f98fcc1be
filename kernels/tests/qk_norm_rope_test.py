"""qk_norm_rope_cache: values, layouts, what goes to the cache, and what only a GPU can show."""

import dataclasses
import math

import pytest
import torch
from caches import FLOAT8, GUARD, bits, guarded_caches, stored
from cases import CLIPS, same_bits

from asynct_kernels import QkNormRope, qk_norm_rope_cache, qk_uclip_norm, reference

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
HEADS, KV_HEADS, TOKENS, BLOCKS, BLOCK_SIZE = 6, 2, 21, 5, 16

devices = pytest.mark.parametrize("device", DEVICES)
dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
sizes = pytest.mark.parametrize("size", [64, 128, 256, 40, 6])


def make_norm_rope(size, device, cos_sin_dtype=torch.float32, clip=(-1.0, 1.0),
                   parameter_sizes="n1n1"):
    """Random parameters; the cosines and sines of RoPE's angles at 300 positions."""
    parameters = [torch.randn(size if n == "n" else 1, device=device) for n in parameter_sizes]
    angles = torch.arange(300)[:, None] * 1e4 ** -torch.linspace(0, 1, size // 2)
    return QkNormRope(
        q_alpha=parameters[0], q_gamma=parameters[1], k_alpha=parameters[2],
        k_gamma=parameters[3], clip=clip,
        cos_sin=torch.cat([angles.cos(), angles.sin()], dim=-1).to(device, cos_sin_dtype))


def make_qkv(size, dtype, device, tokens=TOKENS, spare=0):
    """Query, key and value as views of one projection's rows."""
    width = (HEADS + 2 * KV_HEADS) * size
    fused = torch.randn(tokens, width + spare, device=device).mul(1.5).to(dtype)[:, spare:]
    return fused.unflatten(-1, (-1, size)).split([HEADS, KV_HEADS, KV_HEADS], dim=1)


def make_arguments(size, dtype, device, *, cache_dtype=None, spare=0, tokens=TOKENS, **settings):
    """Arguments of qk_norm_rope_cache, some tokens without a slot, and what its caches lie in."""
    query, key, value = make_qkv(size, dtype, device, tokens, spare)
    whole, k_cache, v_cache = guarded_caches((BLOCKS, BLOCK_SIZE, KV_HEADS, size),
                                         cache_dtype or dtype, device, spare)
    slots = torch.randperm(BLOCKS * BLOCK_SIZE, device=device)[:tokens]
    slots[torch.rand(len(slots), device=device) < 0.2] = -1
    return whole, dict(query=query, key=key, value=value,
                       positions=torch.randint(300, (tokens,), device=device),
                       norm_rope=make_norm_rope(size, device, **settings), k_cache=k_cache,
                       v_cache=v_cache, slot_mapping=slots)


def moved(arguments, device):
    """Copies of the arguments on `device`, the caches of the same strides."""
    def move(x):
        if isinstance(x, QkNormRope):
            return QkNormRope(**{f.name: move(getattr(x, f.name)) for f in dataclasses.fields(x)})
        if not isinstance(x, torch.Tensor):
            return x
        copy = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
        bits(copy).copy_(bits(x)) if x.dtype == FLOAT8 else copy.copy_(x)
        return copy
    return {name: move(x) for name, x in arguments.items()}


def check(whole, arguments):
    """Runs the operation and checks outputs and caches; on CUDA they are the CPU's, bit by bit."""
    on_cpu = moved(arguments, "cpu")
    outputs = qk_norm_rope_cache(**arguments)
    query, key, positions, norm_rope = (
        on_cpu[name] for name in ("query", "key", "positions", "norm_rope"))
    exact = reference.qk_norm_rope(query.double(), key.double(), positions, norm_rope)
    plain = in_the_dtype(query, key, positions, norm_rope)
    for output, truth, other in zip(outputs, exact, plain):
        assert output.dtype == query.dtype and output.is_contiguous()
        if not truth.numel():
            continue
        error, allowed = output.cpu().double() - truth, other.double() - truth
        assert error.isfinite().all() and error.norm() <= allowed.norm()
        assert error.norm(math.inf) <= 2 * allowed.norm(math.inf)
    if whole.is_cuda:
        for output, same in zip(outputs, qk_norm_rope_cache(**on_cpu)):
            assert same_bits(output.cpu(), same)
    assert torch.equal(bits(whole), bits(expected_caches(whole, arguments, outputs[1])))


def expected_caches(whole, arguments, key):
    """What the caches, full of guards before, must hold and lie in, given the keys k'."""
    blocks, _, slots, heads, wide = whole.shape
    wanted, *caches = guarded_caches((blocks, slots, heads, key.shape[2]), whole.dtype,
                                     whole.device, wide - key.shape[2])
    slot_mapping = arguments["slot_mapping"]
    kept = slot_mapping >= 0
    place = slot_mapping[kept] // slots, slot_mapping[kept] % slots
    for cache, rows, scale in zip(caches, (key, arguments["value"]), ("k_scale", "v_scale")):
        rows = stored(rows[:len(slot_mapping)][kept], arguments.get(scale))
        bits(cache)[place] = bits(rows.contiguous())
    return wanted


def in_the_dtype(query, key, positions, norm_rope):
    """The same by DyHT and RoPE as operations that each round to the dtype of their inputs."""
    cos, sin = norm_rope.cos_sin[positions].to(query.dtype).unsqueeze(1).chunk(2, dim=-1)
    for x in qk_uclip_norm(query, key, *norm_rope.parameters, *norm_rope.clip):
        first, second = x.chunk(2, dim=-1)
        yield torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@devices
@dtypes
@sizes
@pytest.mark.parametrize("spare", [0, 3, 8])
def test_values(seed, device, dtype, size, spare):
    for cos_sin_dtype in (torch.float32, dtype):
        for parameter_sizes in ("nnnn", "1111", "n11n"):
            check(*make_arguments(size, dtype, device, spare=spare, cos_sin_dtype=cos_sin_dtype,
                                  parameter_sizes=parameter_sizes))


@devices
@dtypes
@sizes
@pytest.mark.parametrize("scales", [1, KV_HEADS])
def test_float8_cache(seed, device, dtype, size, scales):
    factors = {name: torch.rand(scales, device=device) + 0.25 for name in ("k_scale", "v_scale")}
    whole, arguments = make_arguments(size, dtype, device, cache_dtype=FLOAT8)
    check(whole, arguments | factors)


@devices
@pytest.mark.parametrize("clip", CLIPS)
def test_clip(seed, device, clip):
    check(*make_arguments(64, torch.bfloat16, device, clip=clip))


@devices
def test_fewer_slots_than_tokens_and_none(seed, device):
    for count in (0, 5):
        whole, arguments = make_arguments(64, torch.bfloat16, device)
        check(whole, arguments | dict(slot_mapping=arguments["slot_mapping"][:count]))
    check(*make_arguments(64, torch.bfloat16, device, tokens=0))



@devices
def test_outputs_may_be_given(seed, device):
    _, arguments = make_arguments(64, torch.float16, device)
    out = tuple(torch.full_like(arguments[x], math.nan, memory_format=torch.contiguous_format)
                for x in ("query", "key"))
    results = qk_norm_rope_cache(**arguments, out=out)
    assert all(a is b for a, b in zip(results, out))
    for a, b in zip(out, qk_norm_rope_cache(**arguments)):
        assert torch.equal(a, b)


@devices
def test_nan_stays_and_spreads_no_further(seed, device):
    _, arguments = make_arguments(64, torch.bfloat16, device)
    expected = qk_norm_rope_cache(**arguments)
    ill = arguments["query"].clone()
    ill[3, 2, 40] = math.nan
    query, key = qk_norm_rope_cache(**arguments | dict(query=ill))
    assert query[3, 2, 8::32].isnan().all() and query.isnan().sum() == 2
    assert torch.equal(key, expected[1])
    assert torch.equal(query.nan_to_num(0.0), expected[0].where(~query.isnan(), 0.0))


def good_norm_rope(**changes):
    one = torch.ones(1)
    return QkNormRope(**dict(q_alpha=one, q_gamma=one, k_alpha=one, k_gamma=one, clip=(-1.0, 1.0),
                             cos_sin=torch.zeros(9, 64)) | changes)


@pytest.mark.parametrize("changes, error, message", [
    (dict(q_alpha=1.0), TypeError, "q_alpha is a float"),
    (dict(k_gamma=torch.ones(1).half()), TypeError, "k_gamma has dtype torch.float16"),
    (dict(q_gamma=torch.ones(32)), ValueError, r"q_gamma has shape \[32\]: must be \[64\] or"),
    (dict(clip=[-1.0, 1.0]), TypeError, r"clip is \[-1.0, 1.0\]: must be a tuple"),
    (dict(clip=(1.0, -1.0)), ValueError, r"clip\[0\] is 1.0 and clip\[1\] is -1.0"),
    (dict(cos_sin=torch.zeros(9, 63)), ValueError, r"cos_sin has shape \[9, 63\]"),
    (dict(cos_sin=torch.zeros(64)), ValueError, r"cos_sin has shape \[64\] .*must be \[max_pos"),
    (dict(cos_sin=torch.zeros(64, 9).mT), ValueError, r"and strides \[1, 9\]: must be"),
])
def test_bad_parameters_are_named(changes, error, message):
    with pytest.raises(error, match=message):
        good_norm_rope(**changes)


@pytest.mark.parametrize("changes, error, message", [
    (dict(query=torch.zeros(4, 6, 32).half()), ValueError, r"query has shape \[4, 6, 32\]"),
    (dict(query=torch.zeros(4, 6, 64)), TypeError, "query has dtype torch.float32 and key"),
    (dict(query=torch.zeros(4, 5, 64).half()), ValueError, "query has 5 heads and key has 2"),
    (dict(value=torch.zeros(4, 64).half()), ValueError, r"value has shape \[4, 64\]"),
    (dict(positions=torch.zeros(4, dtype=torch.int32)), TypeError, "positions has dtype"),
    (dict(positions=torch.zeros(3, dtype=torch.int64)), ValueError, r"positions has shape \[3\]"),
    (dict(norm_rope=None), TypeError, "norm_rope is a NoneType"),
    (dict(norm_rope=good_norm_rope(cos_sin=torch.zeros(9, 32))), ValueError,
     r"cos_sin has shape \[9, 32\]: must be \[9, 64\]"),
    (dict(norm_rope=good_norm_rope(cos_sin=torch.zeros(9, 64).bfloat16())), TypeError,
     "cos_sin has dtype torch.bfloat16: must be one of torch.float32, torch.float16"),
    (dict(out=(torch.zeros(4, 6, 64).half(), torch.zeros(2, 4, 64).half().transpose(0, 1))),
     ValueError, r"out\[1\] has strides \[64, 256, 1\]: must be contiguous"),
    (dict(k_scale=torch.ones(1)), ValueError, "k_scale is given"),
])
def test_bad_arguments_are_named(changes, error, message):
    given = dict(query=torch.zeros(4, 6, 64).half(), key=torch.zeros(4, 2, 64).half(),
                 value=torch.zeros(4, 2, 64).half(), positions=torch.arange(4),
                 norm_rope=good_norm_rope(), k_cache=torch.zeros(3, 16, 2, 64).half(),
                 v_cache=torch.zeros(3, 16, 2, 64).half(), slot_mapping=torch.arange(4))
    with pytest.raises(error, match=message):
        qk_norm_rope_cache(**given | changes)


def test_operation_is_well_formed(seed):
    _, given = make_arguments(64, torch.float16, "cpu")
    norm_rope = given["norm_rope"]
    outputs = [torch.empty(given[x].shape, dtype=torch.float16) for x in ("query", "key")]
    torch.library.opcheck(torch.ops.asynct.qk_norm_rope_cache.default, (
        *outputs, *(given[x].contiguous() for x in ("query", "key", "value")), given["positions"],
        *norm_rope.parameters, *norm_rope.clip, norm_rope.cos_sin,
        given["k_cache"].contiguous(), given["v_cache"].contiguous(), given["slot_mapping"]))


@pytest.mark.gpu
def test_same_bits_in_every_run_and_any_batch(seed):
    _, arguments = make_arguments(128, torch.bfloat16, "cuda", tokens=75)
    first = qk_norm_rope_cache(**arguments)
    for _ in range(50):
        assert all(torch.equal(a, b) for a, b in zip(qk_norm_rope_cache(**arguments), first))
    few = {name: arguments[name][7:20]
           for name in ("query", "key", "value", "positions", "slot_mapping")}
    for a, b in zip(qk_norm_rope_cache(**arguments | few), first):
        assert torch.equal(a, b[7:20])


@pytest.mark.gpu
def test_graph_replays_on_new_inputs(seed):
    whole, arguments = make_arguments(128, torch.bfloat16, "cuda")
    qk_norm_rope_cache(**arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = qk_norm_rope_cache(**arguments)
    for _ in range(3):
        _, fresh = make_arguments(128, torch.bfloat16, "cuda")
        for name in ("query", "key", "value", "positions", "slot_mapping"):
            arguments[name].copy_(fresh[name])
        whole.view(torch.uint8).fill_(GUARD)
        graph.replay()
        expected = qk_norm_rope_cache(**fresh | dict(norm_rope=arguments["norm_rope"]))
        assert all(torch.equal(a, b) for a, b in zip(outputs, expected))
        assert torch.equal(bits(whole), bits(expected_caches(whole, arguments, outputs[1])))
