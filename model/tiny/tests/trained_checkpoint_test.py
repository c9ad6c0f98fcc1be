"""The checkpoint in the tree: whole, small, and as good as its record says."""

import json
from pathlib import Path

import pytest
import torch
from asynct_model import AsyncTConfig, AsyncTForCausalLM, checkpoint
from asynct_tiny.exact_match import exact_match
from asynct_tiny.problems import generate, worked
from asynct_tiny.sizes import tiny_config
from asynct_tiny.sparsity import sparsity
from asynct_tiny.tokenizer import build_tokenizer
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer

TINY = Path(__file__).parent.parent
CHECKPOINT = TINY / "checkpoint"
RECORD = json.loads((TINY / "results" / "run.json").read_text())


@pytest.fixture(scope="module")
def model():
    return AsyncTForCausalLM.from_pretrained(CHECKPOINT, dtype=torch.float32).eval()


def test_files_are_the_models_and_small():
    config = AutoConfig.from_pretrained(CHECKPOINT)
    assert isinstance(config, AsyncTConfig)
    checkpoint.check_directory(CHECKPOINT, config)
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) <= 9e6
    with safe_open(CHECKPOINT / checkpoint.WEIGHTS_FILE, framework="pt") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            assert tensor.dtype == (torch.float32 if tensor.ndim == 1 else torch.bfloat16), name
            assert tensor.isfinite().all(), name


def test_configuration_is_the_training_scripts():
    config, current = AutoConfig.from_pretrained(CHECKPOINT), tiny_config()
    for name in ("hidden_size", "num_hidden_layers", "vocab_size", "rope_parameters"):
        assert getattr(config, name) == getattr(current, name)
    assert config.gate_settings == current.gate_settings


def test_tokenizer_is_the_byte_tokenizer():
    stored, built = AutoTokenizer.from_pretrained(CHECKPOINT), build_tokenizer()
    assert stored.backend_tokenizer.to_str() == built.backend_tokenizer.to_str()
    assert stored.chat_template == built.chat_template


@pytest.mark.parametrize(("shots", "count", "batch"), [(0, 64, 64), (8, 5, 5)])
def test_held_out_problems_are_answered(model, shots, count, batch, seed):
    """A sample of fresh problems; the record has 500 with each number of shots."""
    share = exact_match(model, count, shots, seed=seed, batch=batch)
    assert share >= (0.95 if count > 20 else 0.8)


def test_the_recorded_score_is_what_was_asked_for():
    final = RECORD["final"]
    assert final["problems"] >= 500
    assert final["0"] >= 0.95 and final["8"] >= 0.95


def test_sparsity_is_what_was_recorded(model, seed):
    text = "\n\n".join(worked(problem) for problem in generate(20, seed, "train")).encode()[:2048]
    measured = sparsity(model, torch.tensor([list(text)]))
    for layer, recorded in zip(measured, RECORD["sparsity"], strict=True):
        assert layer.attention == pytest.approx(recorded["attention"], abs=0.05)
        assert layer.mlp == pytest.approx(recorded["mlp"], abs=0.05)
