"""Writes the table of features.md: what of vLLM's features is served, and the tests that show it.

    bazel run //model/features
"""

import ast
import dataclasses
import functools
import os
import pathlib

import documents
from documents import markdown

ROOT = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", pathlib.Path(__file__).parents[2]))
DOCUMENT = ROOT / "model" / "features" / "features.md"
# Every test in these shows a feature.
FEATURE_TESTS = tuple(
    f"model/tests/vllm_{name}_test.py" for name in (
        "features", "fp8", "memory", "soak", "speculation"))


@dataclasses.dataclass(frozen=True)
class Feature:
    """One row.

    Attributes:
        name: as vLLM's users know it.
        status: whether it is served, and how.
        tests: FILE::FUNCTION of each test that shows it.
    """

    name: str
    status: str
    tests: tuple[str, ...]


def _by(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"model/tests/vllm_{file}_test.py::test_{name}" for name in names)


_SAMPLES = _by("features", "samples_of_one_prompt_and_the_prompts_log_probabilities")
_VERIFIED = "served: 1 + k tokens by the decode kernel, in captured graphs"

FEATURES = (
    Feature("several samples of a prompt (`n`)", "served", _SAMPLES),
    Feature("log-probabilities, of prompts too", "served", _SAMPLES),
    Feature("structured output", "served", _by("features", "structured_output")),
    Feature("prompt embeddings", "served", _by("features", "prompt_embeddings")),
    Feature("LoRA", "served", _by("features", "a_lora_adapter_is_added_to_every_projection")),
    Feature("chunked prefill, prefix caching", "served",
            _by("engine", "paged_steps_match_one_unpaged_forward")
            + _by("gpu", "each_step_is_served_as_planned_and_right")),
    Feature("preemption", "served", _by("engine", "preempted_requests_resume_as_they_were")),
    Feature("speculation by n-grams", _VERIFIED, _by("speculation", "ngrams")),
    Feature("speculation by a draft model", _VERIFIED, _by("speculation", "a_draft_model")),
    Feature("speculation by an EAGLE or EAGLE-3 head", _VERIFIED,
            _by("speculation", "eagle", "an_eagle3_head_is_given_the_inner_layers")),
    Feature("fp8 weights", "served on GPUs", _by("fp8", "weights")),
    Feature("fp8 KV cache (`fp8`, `fp8_e4m3`)",
            "served, with scales of 1, or the checkpoint's, a tensor or a head",
            _by("fp8", "kv_cache")),
    Feature("other quantised KV caches (`fp8_e5m2`)", "refused at start: no kernel reads them",
            ("backend/tests/impl_test.py::test_refuses",)),
    Feature("KV connectors", "served", _by("features", "kv_connector")),
    Feature("KV cache offloaded to the CPU", "served on GPUs",
            _by("memory", "cache_offloaded_to_the_cpu")),
    Feature("weights offloaded to the CPU",
            "served on GPUs; vLLM's model runner V2 offloads none (`VLLM_USE_V2_MODEL_RUNNER=0`)",
            _by("memory", "weights_offloaded_to_the_cpu")),
    Feature("sleep and wake", "served on GPUs, at both levels", _by("memory", "sleep_and_wake")),
    Feature("weights reloaded in place", "served", _by("features", "reloaded_weights")),
    Feature("a context of 128K", "served", _by("memory", "a_context_of_128k")),
    Feature("cascade attention", "declined: each request reads what it shares by itself",
            _by("features", "cascade_attention_is_declined")),
    Feature("a sliding window", "refused at start: a query sees every key up to its own",
            _by("features", "a_sliding_window_is_refused")),
    Feature("all at once, for long", "served: nothing is lost, mixed up or left behind",
            _by("soak", "soak")),
)


@functools.cache
def tests_in(path: str) -> dict[str, bool]:
    """The tests of a file, and whether each needs a GPU."""
    module = ast.parse((ROOT / path).read_text())
    everywhere = any(
        isinstance(node, ast.Assign) and ast.unparse(node) == "pytestmark = pytest.mark.gpu"
        for node in module.body)
    return {
        node.name: everywhere or any(
            ast.unparse(decorator) == "pytest.mark.gpu" for decorator in node.decorator_list)
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def table() -> str:
    rows = []
    for feature in FEATURES:
        tests = [test.split("::") for test in feature.tests]
        gpu = all(tests_in(path)[name] for path, name in tests)
        shown = ", ".join(f"`{name}` of [{pathlib.Path(path).name}](../../{path})"
                          for path, name in tests)
        rows.append([feature.name, feature.status, "GPU" if gpu else "CPU, GPU", shown])
    return markdown(["feature", "status", "shown on", "by"], rows, text=4)


TABLES = {"features": table}

if __name__ == "__main__":
    documents.write([DOCUMENT], TABLES)
