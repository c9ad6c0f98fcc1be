"""A prepared call: attend's bits for every layer, and checks where a layer is unlike the last."""

from unittest import mock

import pytest
import torch

from asynct_kernels import QkNormRope, attend, attention_kernels, prepare, qk_norm_rope_cache
from asynct_kernels.attention import PreparedNormRope, find_kernel
from asynct_kernels.attention.prepared import _form
from asynct_kernels.attention.problem import AttentionProblem
from problems import Case
from under_test import keywords, runs

CASES = [
    Case(name="decode", query_lens=(1, 1), seq_lens=(5, 300)),
    Case(name="prefill", query_lens=(5, 20), seq_lens=(25, 20)),
    Case(name="prompts", query_lens=(5, 20), seq_lens=(5, 20), padding=2),
    Case(name="float8", query_lens=(5, 20), seq_lens=(25, 20), float8=True, head_scales=True),
    Case(name="nothing", query_lens=(0, 0), seq_lens=(0, 0), padding=1),
]
STEP = ("block_table", "query_start_loc", "seq_lens", "max_query_len", "max_seq_len")


def split(given):
    """attend's keywords as those of the step and those of a layer."""
    return ({name: given[name] for name in STEP},
            {name: value for name, value in given.items() if name not in STEP})


@runs(CASES)
def test_layers_get_the_bits_of_attend(seed, case, kernel, device):
    call = case.make(device)
    step, first = split(keywords(kernel, call))
    prepared = prepare(**step, kernel=kernel)
    second = first | dict(query=first["query"].flip(1))
    for layer in (first, second, first):
        out = torch.full_like(call.query, float("nan"))
        prepared.launch(**layer, out=out)
        expected = attend(**step, **layer, kernel=kernel, out=torch.full_like(out, float("nan")))
        assert torch.equal(out.view(torch.int16), expected.view(torch.int16))


@pytest.fixture
def layers(seed):
    step, layer = split(CASES[1].make("cpu").arguments())
    return step, layer | dict(out=torch.empty_like(layer["query"]))


def test_what_is_alike_is_checked_once(layers):
    step, layer = layers
    check = mock.Mock(wraps=AttentionProblem.check)
    with mock.patch.object(AttentionProblem, "check", lambda problem: check(problem)):
        prepared = prepare(**step, kernel="reference")
        for query in (layer["query"], layer["query"].clone()):
            prepared.launch(**layer | dict(query=query))
        assert check.call_count == 1
        apart = torch.empty(25, 9, 128, dtype=torch.bfloat16)[:, :4]
        prepared.launch(**layer | dict(query=apart.copy_(layer["query"])))
        assert check.call_count == 2


@pytest.mark.parametrize("changes, error, message", [
    (dict(query=None), TypeError, "query is a NoneType"),
    (dict(query=torch.zeros(25, 4, 64, dtype=torch.bfloat16)), ValueError, "k_cache has shape"),
    (dict(k_cache=torch.zeros(11, 16, 2, 128)), TypeError, "k_cache has dtype torch.float32"),
    (dict(out=None), TypeError, "out is a NoneType"),
    (dict(out=torch.zeros(25, 4, 256, dtype=torch.bfloat16)[..., ::2]), ValueError, "out has str"),
    (dict(gate=0.5), TypeError, "gate is a float: must be a GateParams"),
    (dict(k_scale=torch.ones(1)), ValueError, "k_scale is given"),
    (dict(key=torch.zeros(25, 2, 128, dtype=torch.bfloat16)), TypeError, "value is a NoneType"),
])
def test_a_bad_layer_is_named_after_a_good_one(layers, changes, error, message):
    step, layer = layers
    prepared = prepare(**step, kernel="reference")
    prepared.launch(**layer)
    for _ in range(2):
        with pytest.raises(error, match=message):
            prepared.launch(**layer | changes)


@pytest.mark.parametrize("changes, error, message", [
    (dict(seq_lens=torch.zeros(3)), TypeError, "seq_lens has dtype torch.float32"),
    (dict(max_seq_len=10**6), ValueError, "block_table has room for"),
    (dict(max_query_len=-1), ValueError, "max_query_len is -1"),
    (dict(workspace=torch.zeros(3)), TypeError, "workspace has dtype torch.float32"),
])
def test_a_bad_step_is_named_by_its_first_layer(layers, changes, error, message):
    step, layer = layers
    prepared = prepare(**step | changes, kernel="reference")
    with pytest.raises(error, match=message):
        prepared.launch(**layer)


def test_unknown_kernels_and_keywords_are_named_at_once(layers):
    with pytest.raises(ValueError, match="kernel is 'fast'"):
        prepare(**layers[0], kernel="fast")
    with pytest.raises(TypeError, match="splits is no tuning keyword of reference"):
        prepare(**layers[0], kernel="reference", splits=2)


def test_bounds_left_out_are_read(layers):
    step, layer = layers
    prepare(step["block_table"], step["query_start_loc"], step["seq_lens"],
            kernel="reference").launch(**layer)
    assert torch.equal(layer["out"], attend(**step, **layer | dict(out=None), kernel="reference"))


@pytest.fixture
def raw(seed):
    """PreparedNormRope's step, and keywords for a layer."""
    qkv = torch.randn(5, 8, 64, dtype=torch.bfloat16)
    query, key, value = qkv.split([4, 2, 2], 1)
    vectors = dict(q_alpha=torch.rand(64), q_gamma=torch.rand(1), k_alpha=torch.rand(1),
                   k_gamma=torch.rand(64))
    norm_rope = QkNormRope(clip=(-1.0, 1.0), cos_sin=torch.randn(9, 64), **vectors)
    caches = torch.zeros(3, 2, 16, 2, 64, dtype=torch.bfloat16).unbind(1)
    return (torch.tensor([0, 8, 3, 1, 1]), torch.tensor([5, 40, -1, 0])), dict(
        query=query, key=key, value=value, norm_rope=norm_rope, k_cache=caches[0],
        v_cache=caches[1])


def test_layers_are_normed_turned_and_stored_alike(raw):
    step, layer = raw
    prepared = PreparedNormRope(*step)
    for given in (layer, layer | dict(query=layer["query"].flip(1))):
        stored = {name: torch.zeros_like(layer[name]) for name in ("k_cache", "v_cache")}
        expected = qk_norm_rope_cache(
            **given | stored, positions=step[0], slot_mapping=step[1])
        for got, wanted in zip(prepared.launch(**given), expected, strict=True):
            assert torch.equal(got, wanted)
        for name, wanted in stored.items():
            assert torch.equal(layer[name], wanted)


@pytest.mark.parametrize("changes, error, message", [
    (dict(query=None), TypeError, "query is a NoneType"),
    (dict(value=torch.zeros(5, 2, 64)), TypeError, "value has dtype torch.float32"),
    (dict(norm_rope=1), TypeError, "norm_rope is a int: must be a QkNormRope"),
    (dict(k_scale=torch.ones(1)), ValueError, "k_scale is given"),
])
def test_a_bad_raw_layer_is_named_after_a_good_one(raw, changes, error, message):
    step, layer = raw
    prepared = PreparedNormRope(*step)
    prepared.launch(**layer)
    for _ in range(2):
        with pytest.raises(error, match=message):
            prepared.launch(**layer | changes)


@pytest.mark.parametrize("kernel", attention_kernels())
def test_an_address_off_its_alignment_is_another_form(kernel):
    alignment = find_kernel(kernel).limits.alignment
    shifted = torch.empty(26 * 512, dtype=torch.bfloat16)[1:25 * 512 + 1].view(25, 4, 128)
    same = _form(shifted, alignment) == _form(torch.empty_like(shifted), alignment)
    assert same == (alignment <= 2)
