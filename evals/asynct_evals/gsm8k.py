"""Evaluates a model on grade-school math problems: lm-eval's gsm8k, on vLLM or Hugging Face.

With no flags it asks the tiny AsyncT checkpoint of this repository 200 generated problems that it
was not trained on, with 8 few-shot examples each, on vLLM with the AsyncT backend. It prints a
table of scores and speed and writes a JSON report with every answer.
"""

from __future__ import annotations

import sys

from absl import app, flags
from rich.console import Console

from asynct_evals import cli, model_cli
from asynct_evals.data import InputError
from asynct_evals.settings import ENGINES

flags.adopt_module_key_flags(cli)
_ENGINE = flags.DEFINE_enum("engine", "vllm", ENGINES, "vLLM or Hugging Face transformers.")
_AT_LEAST = flags.DEFINE_float(
    "at_least",
    0.0,
    "Fail, after the report, if the accuracy (strict match) is lower.",
    lower_bound=0.0,
    upper_bound=1.0,
)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    console = Console(soft_wrap=True)
    settings = cli.settings(_ENGINE.value)
    try:
        data = cli.prepare()
        console.print(f"{settings.model} on {settings.engine}: {data}")
        # Imported only now: the libraries read their environment, and importing takes seconds.
        from asynct_evals import evaluation, report

        result = evaluation.run(settings, data)
    except InputError as error:
        sys.exit(f"gsm8k: {error}")
    console.print(report.table(result))
    path = report.save(report.to_json(result), model_cli.output(), "gsm8k")
    console.print(f"Report: {path}")
    accuracy = result.scores[evaluation.STRICT].value
    if accuracy < _AT_LEAST.value:
        sys.exit(f"gsm8k: accuracy {accuracy:.3f} is below --at_least {_AT_LEAST.value}")


if __name__ == "__main__":
    app.run(main)
