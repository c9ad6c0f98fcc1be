"""The counters in vLLM's metrics: counted in one process, shown in another."""

import os
import subprocess
import sys

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector

from asynct_vllm import metrics

# What the front end, its engine and its engine's worker do; the front end prints what it would
# answer, and what `LLM.get_metrics()` has.
FRONT_END = """
import subprocess, sys
from prometheus_client import REGISTRY, generate_latest
from vllm.v1.metrics.reader import get_metrics_snapshot
from asynct_vllm import metrics
metrics.expose()
metrics.expose()
for tokens in ("5", "7"):
    subprocess.run([sys.executable, "-c", sys.argv[1], tokens], check=True)
print(generate_latest(REGISTRY).decode())
print(*(f"{m.name} {m.labels} {m.value}" for m in get_metrics_snapshot()), sep="\\n")
"""
ENGINE = """
import sys
from asynct_vllm import metrics
metrics.expose()
metrics.add("gather", int(sys.argv[1]))
metrics.add("gather", 1)
metrics.add("loop", 2)
"""


def test_processes_add_up_in_the_front_end(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PROMETHEUS_MULTIPROC_DIR"}
    environment |= {"TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run([sys.executable, "-c", FRONT_END, ENGINE], check=True, env=environment,
                           stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert 'vllm:asynct_attention_steps_total{path="gather"} 4.0' in shown
    assert 'vllm:asynct_attention_tokens_total{path="gather"} 14.0' in shown
    assert 'vllm:asynct_attention_tokens_total{path="loop"} 4.0' in shown
    assert "vllm:asynct_attention_tokens {'path': 'gather'} 14" in shown
    assert not list(tmp_path.glob("asynct-metrics-*")), "the folder outlives the front end"


def test_vllms_own_folder_is_used_where_there_are_several_api_servers(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    metrics.add("padded", 3)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(tmp_path))
    name, _ = metrics.TOKENS
    assert registry.get_sample_value(f"{name}_total", {"path": "padded"}) == 3


def test_without_a_front_end_nothing_is_written(tmp_path, monkeypatch):
    for name in ("PROMETHEUS_MULTIPROC_DIR", "ASYNCT_METRICS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    metrics.add("padded", 3)
    assert not list(tmp_path.iterdir())
