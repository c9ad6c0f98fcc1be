"""A vLLM engine that is given fixed workloads: prompts as token ids, outputs of fixed lengths."""

import json
import pathlib
import random
import time
from collections.abc import Sequence
from typing import Any

from scenarios import Scenario

Prompts = list[list[int]]

# What every engine that is compared has in common.
_OPTIONS = dict(skip_tokenizer_init=True, max_num_batched_tokens=16384,
                enable_prefix_caching=False, disable_log_stats=True)


def random_prompts(scenario: Scenario, vocabulary: int, seed: int) -> Prompts:
    """Prompts of the scenario's lengths, of tokens below `vocabulary`."""
    draw = random.Random(seed)
    return [draw.choices(range(vocabulary), k=length) for length, _ in scenario.lengths]


class Engine:
    """vLLM over one model, and what is asked of it here."""

    def __init__(self, model: pathlib.Path, traces: pathlib.Path, *, queued: bool = False,
                 **options: Any):
        """Starts vLLM.

        Args:
          model: a checkpoint's folder, or one with a configuration alone (load_format="dummy").
          traces: a folder, made if it is missing, for the profiler's traces.
          queued: whether all prompts lie in the engine's queue before it may begin, and time counts
            from there. As vLLM's `generate` has it, they come one by one, and the engine begins
            with those that are there.
          options: further arguments of vllm.LLM.
        """
        from vllm import LLM

        traces.mkdir(parents=True, exist_ok=True)
        config = json.loads((model / "config.json").read_text())
        self.layers: int = config["num_hidden_layers"]
        self.vocabulary: int = config["vocab_size"]
        self._traces = traces
        self._queued = queued
        self._llm = LLM(**(_OPTIONS | options), model=str(model), profiler_config={
            "profiler": "torch", "torch_profiler_dir": str(traces), "ignore_frontend": True,
            "torch_profiler_with_stack": False, "torch_profiler_dump_cuda_time_total": False})

    def run(self, scenario: Scenario, seed: int) -> float:
        """Seconds that the scenario takes, greedy, on random prompts that the seed decides."""
        prompts = random_prompts(scenario, self.vocabulary, seed)
        started, outputs = self._generate(prompts, scenario.outputs)
        seconds = time.perf_counter() - started
        lengths = [len(output.outputs[0].token_ids) for output in outputs]
        if lengths != scenario.outputs:
            raise RuntimeError(f"{scenario.name}: outputs of {lengths} tokens, not of "
                               f"{scenario.outputs}")
        return seconds

    def answers(self, scenario: Scenario, seed: int,
                logprobs: int) -> list[list[dict[int, float]]]:
        """Runs the scenario as `run` does.

        Returns:
          For each request and each token put out, the log-probabilities of the `logprobs` likeliest
          tokens and of the one put out, which comes first.
        """
        prompts = random_prompts(scenario, self.vocabulary, seed)
        _, outputs = self._generate(prompts, scenario.outputs, logprobs=logprobs)
        return [[{token: step[token].logprob for token in (chosen, *step)}
                 for chosen, step in zip(output.outputs[0].token_ids, output.outputs[0].logprobs)]
                for output in outputs]

    def profile(self, scenario: Scenario, seed: int) -> pathlib.Path:
        """Runs the scenario under PyTorch's profiler; returns the trace."""
        before = set(self._traces.iterdir())
        self._llm.start_profile()
        try:
            self.run(scenario, seed)
        finally:
            self._llm.stop_profile()
        written = [path for path in set(self._traces.iterdir()) - before
                   if ".trace.json" in path.name]
        if len(written) != 1:
            raise RuntimeError(f"expected one new trace in {self._traces}, found {written}")
        return written[0]

    def close(self) -> None:
        """Ends the engine and its processes."""
        self._llm.llm_engine.engine_core.shutdown()

    def _generate(self, prompts: Prompts, outputs: Sequence[int],
                  **sampling: Any) -> tuple[float, list]:
        """When the engine was told to begin (by time.perf_counter), and vLLM's outputs."""
        from vllm import SamplingParams

        requests = [{"prompt_token_ids": prompt} for prompt in prompts]
        parameters = [SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True,
                                     detokenize=False, **sampling) for tokens in outputs]
        if not self._queued:
            started = time.perf_counter()
            return started, self._llm.generate(requests, parameters, use_tqdm=False)
        self._llm.sleep(level=0)
        self._llm.enqueue(requests, parameters, use_tqdm=False)
        started = time.perf_counter()
        self._llm.wake_up(tags=["scheduling"])
        return started, self._llm.wait_for_completion(use_tqdm=False)
