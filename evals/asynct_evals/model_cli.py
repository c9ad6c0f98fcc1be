"""The flags of every program: which model, how, and where the report goes."""

from __future__ import annotations

import pathlib

from absl import flags
from user_path import user_path

from asynct_evals import environment
from asynct_evals.data import InputError
from asynct_evals.settings import DTYPES, TINY_CHECKPOINT

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "Directory of a checkpoint in Hugging Face's format, AsyncT or any other model (default: the "
    "tiny AsyncT checkpoint of this repository).",
)
_SEED = flags.DEFINE_integer(
    "seed", 1234, "Draws the few-shot examples of each prompt, and problems that are generated."
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


def model() -> pathlib.Path:
    """The directory of the checkpoint."""
    return TINY_CHECKPOINT if _MODEL.value is None else user_path(_MODEL.value)


def is_tiny() -> bool:
    """Whether it is the tiny checkpoint of this repository."""
    return model().resolve() == TINY_CHECKPOINT


def seed() -> int:
    return _SEED.value


def dtype() -> str:
    return _DTYPE.value


def output() -> pathlib.Path:
    """The directory for reports."""
    return user_path(_OUTPUT.value)


def prepare(*, offline: bool) -> None:
    """Sets the libraries' environment; `offline` keeps them from the network.

    Raises:
      InputError: there is no checkpoint.
    """
    if not (model() / "config.json").is_file():
        raise InputError(f"--model {model()}: no checkpoint there (no config.json)")
    environment.prepare(offline=offline, verbose=_VERBOSE.value)
