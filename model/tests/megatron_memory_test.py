"""A conversion holds no more than a layer in memory, twice: a small part of the model.

The conversions run in a process of their own, whose anonymous memory (what no file backs) is
watched all the while.
"""

import json
import os
import subprocess
import sys

import pytest
from asynct_model.megatron.convert import FORMATS

_WATCHED = r"""
import ctypes, json, re, sys, threading, time
from pathlib import Path

import torch
from asynct_model.checkpoint import expected_tensors
from asynct_model.megatron.convert import FORMATS, to_huggingface, to_megatron
from asynct_model.megatron.huggingface import TensorWriter
from asynct_model.megatron.names import pieces
from random_checkpoint import random_config

LAYERS = 16


def anonymous():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", status)[1])


class Watch(threading.Thread):
    def __enter__(self):
        ctypes.CDLL(None).malloc_trim(0)
        self.before = self.most = anonymous()
        self.done = False
        self.start()
        return self

    def run(self):
        while not self.done:
            self.look()
            time.sleep(0.0005)

    def look(self, *_):
        self.most = max(self.most, anonymous())

    def __exit__(self, *_):
        self.done = True
        self.join()


directory = Path(sys.argv[1])
config = random_config(
    vocab_size=1000, hidden_size=512, intermediate_size=2048, num_attention_heads=8,
    num_key_value_heads=4, head_dim=64, num_hidden_layers=LAYERS,
)
writer = TensorWriter(directory, LAYERS + 2)
shapes = expected_tensors(config)
for piece in pieces(config, config.vocab_size):
    writer.write({part: torch.rand(shapes[part]) for entry in piece for part in entry.parts})
writer.finish(config)
measured = dict(model=writer.bytes, layer=writer.bytes // LAYERS)
for form in FORMATS:
    with Watch() as watch:
        to_megatron(directory, directory / form, form, 2, watch.look)
    measured[f"to {form}"] = watch.most - watch.before
    with Watch() as watch:
        to_huggingface(directory / form, directory / f"{form}.back", progress=watch.look)
    measured[f"from {form}"] = watch.most - watch.before
print(json.dumps(measured))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoint")
    command = [sys.executable, "-c", _WATCHED, str(directory)]
    environment = dict(
        PYTHONPATH=":".join(sys.path),
        PATH=os.defpath,
        OMP_NUM_THREADS="1",
        MALLOC_MMAP_THRESHOLD_="65536",  # what is freed goes back to the system, and is not counted
    )
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    measured = json.loads(finished.stdout)
    print(measured)
    return measured


@pytest.mark.parametrize("checkpoint_format", FORMATS)
@pytest.mark.parametrize("way", ["to", "from"])
def test_memory(way, checkpoint_format, measured):
    slack = 6e6  # of what Python loads on the way
    most = measured[f"{way} {checkpoint_format}"]
    assert most < 2 * measured["layer"] + slack < measured["model"] / 4
