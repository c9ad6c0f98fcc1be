"""The workloads, the parts of them that are run, and the shape that serves them."""

import json

import pytest
import qwen3_shape
from scenarios import SCENARIOS, Scenario
from timed_engine import random_prompts

MIXED = Scenario("mixed", ((100, 200), (7, 3), (50, 16)))


def test_the_table():
    assert {name: scenario.name for name, scenario in SCENARIOS.items()} == {
        name: name for name in SCENARIOS}
    assert SCENARIOS["long_decode_b32"].lengths == ((2048, 256),) * 32
    assert SCENARIOS["long_context_b4"].longest == 16448
    assert [name for name, scenario in SCENARIOS.items() if scenario.decodes] == [
        "decode_heavy_b32", "long_decode_b32", "balanced_b16"]


def test_mixed_lengths_are_spread_over_their_ranges_and_always_the_same():
    mixed = SCENARIOS["mixed_b64"]
    prompts, outputs = zip(*mixed.lengths)
    assert len(prompts) == 64
    assert 64 <= min(prompts) < 128 and 2048 < max(prompts) <= 4096
    assert 16 <= min(outputs) < 32 and 128 < max(outputs) <= 256
    assert mixed == Scenario.mixed("mixed_b64", 64, (64, 4096), (16, 256))
    assert mixed.lengths[:2] == ((464, 92), (343, 205))


def test_parts():
    assert MIXED.only_prefill().lengths == ((100, 1), (7, 1), (50, 1))
    # The middle of 200 tokens, after 92 of them; what is short stays whole.
    assert MIXED.middle(16).lengths == ((192, 16), (7, 3), (50, 16))
    assert MIXED.middle(16).longest == 208


def test_json_has_one_number_for_equal_lengths():
    assert Scenario.uniform("x", 3, 5, 2).as_json() == {
        "name": "x", "requests": 3, "prompt_tokens": 5, "output_tokens": 2}
    assert MIXED.as_json()["prompt_tokens"] == [100, 7, 50]


def test_prompts_are_the_seeds(seed):
    prompts = random_prompts(MIXED, 30, seed)
    assert [len(prompt) for prompt in prompts] == [100, 7, 50]
    assert set().union(*prompts) <= set(range(30))
    assert prompts == random_prompts(MIXED, 30, seed) != random_prompts(MIXED, 30, seed + 1)


def test_another_size_of_the_shape(tmp_path):
    qwen3_shape.write(tmp_path, num_hidden_layers=35)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_hidden_layers"] == 35 and config["hidden_size"] == 2048
    with pytest.raises(ValueError, match="layers: sizes are hidden_size"):
        qwen3_shape.write(tmp_path, layers=3)
