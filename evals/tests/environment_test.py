"""The libraries' settings: defaults that give way to the user's."""

import os

import pytest
import torch
from asynct_evals import environment


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    monkeypatch.setattr(os, "environ", {})


def test_local_data_keeps_the_libraries_off_the_network():
    environment.prepare(offline=False, verbose=False)
    assert "HF_HUB_OFFLINE" not in os.environ
    environment.prepare(offline=True, verbose=False)
    assert os.environ["HF_HUB_OFFLINE"] == os.environ["HF_DATASETS_OFFLINE"] == "1"


def test_logs_are_shown_if_asked_for():
    environment.prepare(offline=True, verbose=True)
    assert "VLLM_LOGGING_LEVEL" not in os.environ
    environment.prepare(offline=True, verbose=False)
    assert os.environ["VLLM_LOGGING_LEVEL"] == "ERROR"


def test_what_the_user_set_stays():
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "7"
    environment.prepare(offline=True, verbose=False)
    assert os.environ["VLLM_CPU_KVCACHE_SPACE"] == "7"


@pytest.mark.parametrize("cuda", [False, True])
def test_the_cpus_settings_are_the_cpus_alone(monkeypatch, cuda):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    environment.prepare(offline=True, verbose=False)
    assert ("TORCHDYNAMO_DISABLE" in os.environ) == (not cuda)
