"""The flags of the programs on gsm8k, made into settings and problems."""

from __future__ import annotations

from absl import flags
from user_path import user_path

from asynct_evals import data, model_cli
from asynct_evals.settings import Settings

flags.adopt_module_key_flags(model_cli)
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


def settings(engine: str) -> Settings:
    """The settings that the flags ask for, for one engine."""
    return Settings(
        model_cli.model(), engine, _NUM_FEWSHOT.value, model_cli.seed(), model_cli.dtype()
    )


def prepare() -> data.Data:
    """Gets the problems that the flags ask for; sets the libraries' environment first.

    Raises:
      InputError: there is no checkpoint, the flags contradict each other, or the problems cannot
        be had.
    """
    tiny = model_cli.is_tiny()
    model_cli.prepare(offline=_DATA.value is not None or tiny)
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
            num_fewshot=_NUM_FEWSHOT.value, limit=_LIMIT.value, seed=model_cli.seed()
        )
    return data.from_hub(limit=_LIMIT.value)
