"""The training program on the CPU: it leaves the checkpoint and the record that it speaks of."""

import json
import math
import subprocess
import sys
from pathlib import Path

import torch
from asynct_model import AsyncTForCausalLM
from asynct_model.checkpoint import expected_tensors
from asynct_tiny.sizes import tiny_config

TRAINED = Path(__file__).parent.parent / "checkpoint"


def _train(output: Path, *arguments: str) -> tuple[str, dict]:
    """Three steps; what the program printed, and its record."""
    command = [sys.executable, "-m", "asynct_tiny.train", f"--output={output}", "--steps=3"]
    command += ["--problems=200", "--single_rows=2", "--packed_rows=1", "--packed_length=400"]
    command += ["--sample=1", "--held_out=1", "--evaluations=0", "--seed=3", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((output / "run.json").read_text())


def test_a_new_model(tmp_path):
    printed, record = _train(tmp_path)
    assert f"checkpoint: {tmp_path}/checkpoint" in printed
    assert (record["steps"], record["skipped_steps"]) == (3, 0)
    assert record["arguments"]["seed"] == 3
    assert record["parameters"] == sum(map(math.prod, expected_tensors(tiny_config()).values()))
    assert len(record["sparsity"]) == tiny_config().num_hidden_layers
    model = AsyncTForCausalLM.from_pretrained(tmp_path / "checkpoint")
    assert model.num_parameters() == record["parameters"]


def test_going_on_from_a_checkpoint(tmp_path):
    """At a rate of zero the trained checkpoint comes back bit for bit, and so does its score."""
    _, record = _train(tmp_path, f"--init_from={TRAINED}", "--matrix_rate=0", "--vector_rate=0")
    assert record["final"] == {"problems": 1, "0": 1.0, "8": 1.0}
    given = AsyncTForCausalLM.from_pretrained(TRAINED)
    kept = AsyncTForCausalLM.from_pretrained(tmp_path / "checkpoint")
    for name, tensor in given.state_dict().items():
        assert torch.equal(kept.state_dict()[name], tensor), name
