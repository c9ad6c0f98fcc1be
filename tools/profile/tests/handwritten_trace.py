"""Writes traces such as PyTorch's profiler leaves of vLLM's worker, with known times."""

import gzip
import json


class Trace:
    """Builds a trace: steps of a worker that launches kernels one by one and graphs of them."""

    def __init__(self):
        self.events = []
        self._correlation = 0

    def add(self, cat, name, ts, dur, **args):
        self.events.append({"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args})

    def step(self, ts, counts):
        name = "execute_context_{}({})_generation_{}({})".format(*counts)
        self.add("user_annotation", name, ts, 50.0)
        self.add("gpu_user_annotation", name, ts + 5, 50.0)

    def launch(self, ts, work, call="cudaLaunchKernel", cat="kernel"):
        self._correlation += 1
        self.add("cuda_runtime", call, ts, 1.0, correlation=self._correlation)
        for name, start, dur in work:
            self.add(cat, name, start, dur, correlation=self._correlation)

    def write(self, path, rng):
        rng.shuffle(self.events)
        with gzip.open(path, "wt") as file:
            json.dump({"traceEvents": self.events + [{"ph": "M", "name": "process_name"}]}, file)
        return path
