"""Settings: defaults, reading, and errors that name the variable, its value and what is allowed."""

import dataclasses

import pytest

from asynct_vllm.settings import PREFIX, Settings


def test_defaults():
    assert Settings.from_environment({}) == Settings(None, 131072, True, True, 64)


def test_reads_what_is_set():
    environment = {
        "VLLM_HP1_TORCH_PATH": "bucketed",
        "VLLM_HP1_BUCKET_TOKENS": "4096",
        "VLLM_HP1_USE_CUDA": "0",
        "VLLM_HP1_PREFILL_WGMMA": "0",
        "VLLM_HP1_WGMMA_MIN_TQ": "128",
        "HOME": "/root",
    }
    assert Settings.from_environment(environment) == Settings("bucketed", 4096, False, False, 128)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    (
        ("VLLM_HP1_TORCH_PATH", "fast", "one of loop, padded, bucketed, gather"),
        ("VLLM_HP1_TORCH_PATH", "", "one of loop"),
        ("VLLM_HP1_TORCH_PATH", "Loop", "one of loop"),
        ("VLLM_HP1_BUCKET_TOKENS", "0", "an integer of 1 or more"),
        ("VLLM_HP1_BUCKET_TOKENS", "-1", "an integer of 1 or more"),
        ("VLLM_HP1_BUCKET_TOKENS", "1e5", "an integer of 1 or more"),
        ("VLLM_HP1_BUCKET_TOKENS", "", "an integer of 1 or more"),
        ("VLLM_HP1_USE_CUDA", "yes", "0 or 1"),
        ("VLLM_HP1_PREFILL_WGMMA", "", "0 or 1"),
        ("VLLM_HP1_WGMMA_MIN_TQ", "0", "an integer of 1 or more"),
    ),
)
def test_a_bad_value_is_named(variable, value, allowed):
    with pytest.raises(ValueError) as raised:
        Settings.from_environment({variable: value})
    message = str(raised.value)
    assert variable in message
    assert repr(value) in message
    assert allowed in message


def test_a_misspelt_variable_is_named():
    with pytest.raises(ValueError, match="VLLM_HP1_TORCH_PTAH='loop'.*VLLM_HP1_TORCH_PATH"):
        Settings.from_environment({"VLLM_HP1_TORCH_PTAH": "loop"})


def test_every_setting_has_a_variable_and_a_meaning():
    for field in dataclasses.fields(Settings):
        variable = field.metadata["variable"]
        assert variable.startswith(PREFIX) or variable == "VLLM_BATCH_INVARIANT"
        assert field.metadata["meaning"]


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().torch_path = "loop"
