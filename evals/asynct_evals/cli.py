"""The flags that the programs share, made into settings and problems."""

from __future__ import annotations

import pathlib

import asynct_tiny
from absl import flags

from asynct_evals import data, environment
from asynct_evals.paths import user_path
from asynct_evals.settings import DTYPES, Settings

# Where it really is: in Bazel's runfiles its files are links.
TINY_CHECKPOINT = (
    (pathlib.Path(asynct_tiny.__file__).parent.parent / "checkpoint" / "config.json")
    .resolve()
    .parent
)

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "Directory of a checkpoint in Hugging Face's format, AsyncT or any other model (default: the "
    "tiny AsyncT checkpoint of this repository).",
)
_DATA = flags.DEFINE_string(
    "data",
    None,
    'JSON-lines file of problems, {"question": ..., "answer": "... #### N"} a line (default: '
    "generated held-out problems for the tiny checkpoint, openai/gsm8k for any other model).",
)
_FEWSHOT_DATA = flags.DEFINE_string(
    "fewshot_data",
    None,
    "JSON-lines file of few-shot examples to go with --data (default: the first problems of "
    "--data itself, which are then not asked).",
)
_LIMIT = flags.DEFINE_integer(
    "limit",
    None,
    f"Ask only so many problems (default: {data.GENERATED_PROBLEMS} generated ones, or all of the "
    "file or of openai/gsm8k).",
    lower_bound=1,
)
_NUM_FEWSHOT = flags.DEFINE_integer(
    "num_fewshot",
    8,
    "Few-shot examples in each prompt; fewer are used, and the output says so, where they do not "
    "fit the model's context.",
    lower_bound=0,
)
_SEED = flags.DEFINE_integer(
    "seed", 1234, "Draws the generated problems and the few-shot examples of each prompt."
)
_DTYPE = flags.DEFINE_enum(
    "dtype",
    "auto",
    DTYPES,
    "Type of weights and activations (auto: the checkpoint's on a GPU, float32 on the CPU).",
)
_OUTPUT = flags.DEFINE_string(
    "output", "results", "Directory for the JSON report, relative to where you are."
)
_VERBOSE = flags.DEFINE_bool("verbose", False, "Show the logs of vLLM, transformers and datasets.")


def settings(engine: str) -> Settings:
    """The settings that the flags ask for, for one engine."""
    return Settings(_model(), engine, _NUM_FEWSHOT.value, _SEED.value, _DTYPE.value)


def output() -> pathlib.Path:
    """The directory for reports."""
    return user_path(_OUTPUT.value)


def prepare() -> data.Data:
    """Gets the problems that the flags ask for; sets the libraries' environment first.

    Raises:
      InputError: there is no checkpoint, the flags contradict each other, or the problems cannot
        be had.
    """
    if not (_model() / "config.json").is_file():
        raise data.InputError(f"--model {_model()}: no checkpoint there (no config.json)")
    tiny = _model().resolve() == TINY_CHECKPOINT
    environment.prepare(offline=_DATA.value is not None or tiny, verbose=_VERBOSE.value)
    if _DATA.value is not None:
        return data.from_files(
            user_path(_DATA.value),
            None if _FEWSHOT_DATA.value is None else user_path(_FEWSHOT_DATA.value),
            num_fewshot=_NUM_FEWSHOT.value,
            limit=_LIMIT.value,
        )
    if _FEWSHOT_DATA.value is not None:
        raise data.InputError("--fewshot_data goes with --data, which is not given")
    if tiny:
        return data.generated(
            num_fewshot=_NUM_FEWSHOT.value, limit=_LIMIT.value, seed=_SEED.value
        )
    return data.from_hub(limit=_LIMIT.value)


def _model() -> pathlib.Path:
    return TINY_CHECKPOINT if _MODEL.value is None else user_path(_MODEL.value)
