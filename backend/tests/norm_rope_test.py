"""Layers that hand over raw queries and keys: DyHT, RoPE and the cache write with the attention."""

import dataclasses
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from comparison import random_gate
from synthetic_step import SyntheticStep

from asynct_kernels import GateParams, QkNormRope, reference
from asynct_kernels.attention import PreparedCall
from asynct_vllm import builder, counters, layer
from asynct_vllm.backend import AsyncTBackend, NormRopeBackend
from asynct_vllm.metadata import AsyncTMetadata
from asynct_vllm.plan import PREFILL_FRESH, Plan
from asynct_vllm.settings import Settings

QUERY_LENS, PREFIX_LENS = (1, 1, 1, 17, 5, 40), (33, 0, 63, 15, 60, 0)


@pytest.fixture(autouse=True)
def plan_is(monkeypatch):
    """The reference kernel stands in for all, unless a test says otherwise."""
    def chosen(decode: str = "reference", prefill: str = "reference") -> None:
        monkeypatch.setattr(builder, "plan", lambda shape, *_: Plan(
            None, decode if shape.num_decodes else None, prefill if shape.num_prefills else None,
            "a test"))

    chosen()
    yield chosen
    counters.reset()


@dataclasses.dataclass(frozen=True)
class RawStep:
    """A step before DyHT and RoPE.

    Attributes:
        step: of the keys and queries as they should become.
        query, key: as the projection made them, views of one tensor.
    """

    step: SyntheticStep
    norm_rope: QkNormRope
    query: torch.Tensor
    key: torch.Tensor
    gate: GateParams

    @classmethod
    def make(cls, query_lens, prefix_lens) -> "RawStep":
        step = SyntheticStep.make(query_lens, prefix_lens, dtype=torch.bfloat16)
        heads, tokens = step.heads, sum(query_lens)
        qkv = torch.randn(tokens, heads.query + 2 * heads.kv, heads.size, dtype=torch.bfloat16)
        query, key, value = qkv.split([heads.query, heads.kv, heads.kv], 1)
        angles = torch.rand(256, heads.size // 2) * 7
        norm_rope = QkNormRope(
            q_alpha=torch.rand(heads.size), q_gamma=torch.rand(1) + 1,
            k_alpha=torch.rand(heads.size), k_gamma=torch.rand(1) + 1, clip=(-1.0, 1.0),
            cos_sin=torch.cat((angles.cos(), angles.sin()), -1))
        positions = torch.cat([torch.arange(prefix, prefix + length)
                               for length, prefix in zip(query_lens, prefix_lens)])
        turned = reference.qk_norm_rope(query, key, positions, norm_rope)
        fresh = [(torch.cat((earlier[:prefix], now)), torch.cat((values[:prefix], own)))
                 for earlier, values, prefix, now, own in zip(
                     step.keys, step.values, prefix_lens, turned[1].split(query_lens),
                     value.split(query_lens))]
        keys, values = map(list, zip(*fresh))
        step.common.positions = positions
        step = dataclasses.replace(
            step, query=turned[0], key=turned[1], value=value, keys=keys, values=values)
        return cls(step, norm_rope, query, key, random_gate(heads.query))

    def build(self) -> AsyncTMetadata:
        """The step's metadata, as for layers that hand over raw queries and keys."""
        made = self.step.builder(Settings())
        made.impl.norm_rope = self.norm_rope
        return made.build(0, self.step.common)

    def run(self, padding: int = 0) -> torch.Tensor:
        """Attends in one layer, to which vLLM has written no keys; `padding` more rows."""
        impl = self.step.impl(self.gate)
        impl.norm_rope = self.norm_rope
        rows = [torch.nn.functional.pad(x, (0, 0, 0, 0, 0, padding), value=float("nan"))
                for x in (self.query, self.key, self.step.value)]
        output = torch.full_like(rows[0], float("nan"))
        return impl.forward(None, *rows, self.step.kv_cache, self.build(), output)


@pytest.mark.parametrize("requests", (slice(0, 6), slice(0, 3), slice(3, 6), slice(2, 4)))
def test_as_if_the_model_had_done_it(requests, seed):
    raw = RawStep.make(QUERY_LENS[requests], PREFIX_LENS[requests])
    output, tokens = raw.run(padding=3), len(raw.query)
    exact = raw.step.reference(raw.gate)
    assert (output[:tokens].double() - exact).abs().max() <= 2**-7 * exact.abs().max()
    assert (output[tokens:] == 0).all()


def test_a_decode_may_share_a_block_that_a_prompt_fills_in_this_step(seed):
    """Of two equal prompts the second finds all but its last token in the first's blocks."""
    raw = RawStep.make((1, 16), (16, 0))
    step = raw.step
    step.common.block_table_tensor[0, 0] = step.common.block_table_tensor[1, 0]
    for held in (step.keys, step.values):
        held[0] = torch.cat((held[1], held[0][16:]))
    exact = step.reference(raw.gate)
    assert (raw.run().double() - exact).abs().max() <= 2**-7 * exact.abs().max()


def test_a_wrong_position_shows(seed):
    raw = RawStep.make(QUERY_LENS, PREFIX_LENS)
    raw.step.common.positions = raw.step.common.positions + 1
    exact = raw.step.reference(raw.gate)
    assert (raw.run().double() - exact).abs().max() > 0.1 * exact.abs().max()


def test_tokens_without_a_slot_are_not_stored(seed):
    raw = RawStep.make((3, 1), (0, 20))
    raw.step.common.slot_mapping[:] = -1
    before = raw.step.kv_cache.clone()
    raw.run()
    assert torch.equal(raw.step.kv_cache.view(torch.int16), before.view(torch.int16))


def test_fresh_prompts_are_read_normed_and_turned(seed, plan_is):
    plan_is(prefill=PREFILL_FRESH)
    raw = RawStep.make((1, 17, 40), (33, 0, 0))
    launch = mock.Mock()
    with mock.patch.object(PreparedCall, "launch", launch):
        raw.run()
    told = launch.call_args_list[-1]
    assert torch.equal(told.args[0], raw.step.query[1:])
    assert torch.equal(told.kwargs["key"], raw.step.key[1:])
    assert torch.equal(told.kwargs["value"], raw.step.value[1:])
    assert "slot_mapping" not in told.kwargs and "qk_norm_rope" not in told.kwargs


@pytest.fixture
def reference_does_it_itself(monkeypatch):
    monkeypatch.setattr(builder, "NORMALISING_KERNELS", ("reference",))


def test_keys_are_written_first_where_requests_may_share_blocks(seed, reference_does_it_itself):
    raw = RawStep.make((1, 1), (33, 5))
    raw = dataclasses.replace(raw, step=dataclasses.replace(raw.step, shares_blocks=True))
    launch = mock.Mock()
    with mock.patch.object(PreparedCall, "launch", launch):
        raw.run()
    (told,) = launch.call_args_list
    assert torch.equal(told.args[0], raw.step.query) and "qk_norm_rope" not in told.kwargs


def test_a_kernel_that_does_it_itself_is_told_how(seed, reference_does_it_itself):
    raw = RawStep.make((1, 1), (33, 5))
    launch = mock.Mock()
    with mock.patch.object(PreparedCall, "launch", launch):
        raw.run()
    (told,) = launch.call_args_list
    assert torch.equal(told.args[0], raw.query) and torch.equal(told.kwargs["key"], raw.key)
    assert torch.equal(told.kwargs["value"], raw.step.value)
    assert told.kwargs["qk_norm_rope"] is raw.norm_rope
    assert torch.equal(told.kwargs["slot_mapping"], raw.step.common.slot_mapping)


def config(**changed) -> SimpleNamespace:
    """What of vLLM's configuration decides, none of it in the way."""
    values = dict(ranks=1, speculative=None, calculated=False) | changed
    return SimpleNamespace(
        parallel_config=SimpleNamespace(decode_context_parallel_size=values["ranks"]),
        speculative_config=values["speculative"],
        cache_config=SimpleNamespace(calculate_kv_scales=values["calculated"]))


@pytest.mark.parametrize("changed, reason", (
    (dict(ranks=2), "decode context parallelism"),
    (dict(speculative=object()), "a speculated token's keys"),
    (dict(calculated=True), "calculate_kv_scales"),
))
def test_what_leaves_it_to_the_model(changed, reason):
    assert not layer._model_reasons(config())
    assert reason in layer._model_reasons(config(**changed))[0]


def test_batch_invariance_is_refused_where_it_cannot_be_had():
    layer._check_invariance(config(), [])
    with pytest.raises(ValueError, match="a request's bits: no card; 2 ranks share keys"):
        layer._check_invariance(config(ranks=2), ["no card"])


def test_vllm_stores_no_keys_beside_it():
    assert NormRopeBackend.forward_includes_kv_cache_update
    assert not AsyncTBackend.forward_includes_kv_cache_update
