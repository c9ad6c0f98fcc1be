"""The program that prints a plan."""

import explain
import pytest
from absl import app, flags
from absl.testing import flagsaver


@pytest.fixture(autouse=True)
def default_flags():
    flags.FLAGS(["explain"])


def test_prints_the_plan_and_what_each_kernel_can_do(capsys):
    with flagsaver.flagsaver(prefills=2, query_len=300, head_size=80):
        explain.main(["explain"])
    text = capsys.readouterr().out
    assert "decodes by triton_decode, prefills by triton_prefill" in " ".join(text.split())
    assert "must be one of [64, 128, 256]" in " ".join(text.split())


def test_a_machine_without_a_card(capsys):
    with flagsaver.flagsaver(capability="none"):
        explain.main(["explain"])
    text = " ".join(capsys.readouterr().out.split())
    assert "whole step by gather" in text
    assert "DyHT and RoPE of queries and keys: by the model (query is on no CUDA device" in text


@pytest.mark.parametrize("text", ("9", "9.x", ""))
def test_a_bad_capability_is_named(text):
    with pytest.raises(app.UsageError, match="--capability"):
        explain.parse_capability(text)


def test_heads_that_do_not_fall_into_groups():
    with flagsaver.flagsaver(heads=6, kv_heads=4), pytest.raises(app.UsageError, match="--heads=6"):
        explain.main(["explain"])
