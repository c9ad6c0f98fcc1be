"""Evaluates a model on any of lm-eval's tasks, on vLLM or Hugging Face.

    ./bazelw run //evals:lm_eval -- --tasks arc_easy,hellaswag --model DIR
    ./bazelw run //evals:arc_easy -- --data arc_easy=FOLDER

It says how it goes on, prints a table of the metrics and writes a JSON report. Started again after
an interruption it asks only what has not been answered.
"""

from __future__ import annotations

import os
import pathlib
import sys

from absl import app, flags
from rich.console import Console
from user_path import user_path

from asynct_evals import model_cli
from asynct_evals.data import InputError
from asynct_evals.settings import ENGINES, Settings

flags.adopt_module_key_flags(model_cli)
_ENGINE = flags.DEFINE_enum("engine", "vllm", ENGINES, "vLLM or Hugging Face transformers.")
_TASKS = flags.DEFINE_list(
    "tasks", None, "lm-eval's names of tasks, groups or tags.", required=True
)
_DATA = flags.DEFINE_multi_string(
    "data",
    [],
    "TASK=PATH: a copy of the task's data set, a file of its problems or a folder with a file a "
    "split (JSON lines, Parquet or CSV); may be repeated (default: from the hub).",
)
_NUM_FEWSHOT = flags.DEFINE_integer(
    "num_fewshot", None, "Examples in each prompt (default: as each task has it).", lower_bound=0
)
_LIMIT = flags.DEFINE_integer(
    "limit", None, "Ask only so many problems of each task.", lower_bound=1
)
_MAX_LENGTH = flags.DEFINE_integer(
    "max_length",
    None,
    "Tokens of context, prompt and answer together; longer prompts are cut from the left, with a "
    "warning (default: all that the model has).",
    lower_bound=1,
)


def copied() -> dict[str, pathlib.Path]:
    """Task -> path, of --data.

    Raises:
      InputError: one is not TASK=PATH.
    """
    found = {}
    for given in _DATA.value:
        name, separator, path = given.partition("=")
        if not (name and separator and path):
            raise InputError(f"--data {given}: it must be TASK=PATH")
        found[name] = user_path(path)
    return found


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    console = Console(soft_wrap=True)
    settings = Settings(
        model_cli.model(), _ENGINE.value, _NUM_FEWSHOT.value, model_cli.seed(), model_cli.dtype()
    )
    try:
        paths = copied()
        # We tell the progress of the whole; vLLM's bar is of a part.
        os.environ.setdefault("TQDM_DISABLE", "1")
        model_cli.prepare(offline=paths.keys() >= set(_TASKS.value))
        # Imported only now: the libraries read their environment, and importing takes seconds.
        from lm_eval.tasks import TaskManager

        from asynct_evals import harness_tasks, report, task_run

        tasks = harness_tasks.load(
            TaskManager(),
            _TASKS.value,
            paths,
            num_fewshot=_NUM_FEWSHOT.value,
            seed=model_cli.seed(),
        )
        result = task_run.run(
            settings,
            tasks,
            limit=_LIMIT.value,
            max_length=_MAX_LENGTH.value,
            folder=model_cli.output(),
            say=lambda line: console.print(line, highlight=False, markup=False),
        )
    except InputError as error:
        sys.exit(f"lm_eval: {error}")
    console.print(task_run.table(result))
    path = report.save(task_run.to_json(result), model_cli.output(), "lm_eval")
    console.print(f"Report: {path}")


if __name__ == "__main__":
    app.run(main)
