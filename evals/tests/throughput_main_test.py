"""The program: flags to settings, and bad input to one clear line."""

import pytest
from absl import flags
from absl.testing import flagsaver
from asynct_evals import environment
from asynct_evals.data import InputError
from asynct_evals.throughput import main
from scenarios import SCENARIOS


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Runs as `bazel run` does: started elsewhere, with the user's folder in the environment."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(environment, "prepare", lambda **_: None)
    with flagsaver.flagsaver():
        yield tmp_path


def settings(*arguments: str, gpu: bool = True):
    flags.FLAGS(["throughput", *arguments])
    return main.settings(gpu=gpu)


def test_defaults():
    asked = settings()
    assert asked.model == "asynct-1.7b" and asked.shape.hidden_size == 2048
    assert asked.scenarios == tuple(SCENARIOS.values())
    assert asked.rounds == 20 and asked.profile and asked.attention_zeros == 0.7
    assert asked.our_options() == {
        "queued": False, "dtype": "bfloat16", "quantization": None, "async_scheduling": None,
        "kv_cache_memory_bytes": 20 << 30, "gpu_memory_utilization": 0.05,
        "tensor_parallel_size": 1, "max_model_len": 16448}
    assert asked.their_options() == asked.our_options() | {
        "attention_config": {"backend": "FLASH_ATTN", "flash_attn_version": 3}}
    assert settings().seed != asked.seed


def test_options_reach_the_engines():
    asked = settings("--preset=asynct-0.6b", "--scenarios=long_decode_b32,long_prefill_b4",
                     "--graphs=full_decode_only", "--noasync_scheduling", "--queued",
                     "--quantization=fp8", "--dtype=float16", "--cache_gib=2.5", "--seed=7",
                     "--tensor_parallel_size=2")
    assert asked.shape.num_hidden_layers == 35 and asked.seed == 7 and not asked.profile
    assert [scenario.name for scenario in asked.scenarios] == ["long_decode_b32", "long_prefill_b4"]
    assert asked.our_options() == {
        "queued": True, "dtype": "float16", "quantization": "fp8", "async_scheduling": False,
        "kv_cache_memory_bytes": 5 << 29, "gpu_memory_utilization": 0.05,
        "tensor_parallel_size": 2, "max_model_len": 2304,
        "compilation_config": {"cudagraph_mode": "FULL_DECODE_ONLY"}}


def test_a_checkpoint_is_the_users(home):
    asked = settings("--checkpoint=mine/model")
    assert asked.checkpoint == home / "mine" / "model"
    assert asked.model == "model" and asked.shape is None


def test_trying_out_is_small_and_runs_on_a_cpu():
    asked = settings("--try_out", gpu=False)
    assert asked.model == "asynct-try-out" and asked.shape.num_hidden_layers == 2
    assert [scenario.name for scenario in asked.scenarios] == list(SCENARIOS)
    assert asked.scenarios[3].lengths == ((64, 8),) * 4
    assert asked.graphs == "eager" and not asked.profile
    assert "attention_config" not in asked.their_options()
    assert settings("--try_out", gpu=True).graphs == "default"


@pytest.mark.parametrize("arguments, gpu, words", [
    (["--scenarios=long_prefill_b4,short"], True, "--scenarios short: must be of long_prefill_b4"),
    (["--scenarios="], True, "--scenarios : must be of"),
    ([], False, "no GPU here: on a CPU there is only --try_out"),
    (["--try_out", "--graphs=piecewise"], False, "--graphs piecewise: a CPU has no CUDA graphs"),
])
def test_what_cannot_be_run_is_refused(arguments, gpu, words):
    with pytest.raises(InputError, match=words):
        settings(*arguments, gpu=gpu)


@pytest.mark.parametrize("argument", [
    "--rounds=0", "--dtype=float32", "--preset=asynct-7b", "--cache_gib=0",
    "--attention_zeros=0.2", "--graphs=all", "--seconds=-1"])
def test_values_that_no_run_can_have_are_refused_by_flag(argument):
    with pytest.raises(flags.IllegalFlagValueError, match=argument[2:].split("=")[0]):
        settings(argument)


def test_bad_input_ends_the_program_with_one_line():
    flags.FLAGS(["throughput", "--scenarios=none", "--try_out"])
    with pytest.raises(SystemExit) as end:
        main.main(["throughput"])
    assert str(end.value.code).startswith("throughput: --scenarios none: must be of")
