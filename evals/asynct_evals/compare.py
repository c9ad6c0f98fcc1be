"""Runs vLLM and Hugging Face on the same gsm8k prompts and reports where they differ.

Each engine runs in a process of its own. The tables and the JSON report give the accuracy of both,
the problems that only one solves, how many generated tokens agree, and the first differing token
of each answer with how close a call it was. Flags and defaults are those of the gsm8k program.
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import sys

from absl import app, flags
from rich.console import Console

from asynct_evals import cli, model_cli
from asynct_evals.data import Data, InputError
from asynct_evals.settings import ENGINES, Settings

flags.adopt_module_key_flags(cli)


def run_apart(settings: Settings, data: Data):
    """`evaluation.run` in a new process, so that no engine sees another's memory or state."""
    with concurrent.futures.ProcessPoolExecutor(
        max_workers=1, mp_context=multiprocessing.get_context("spawn")
    ) as process:
        return process.submit(_run, settings, data).result()


def _run(settings: Settings, data: Data):
    from asynct_evals import evaluation

    return evaluation.run(settings, data)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    console = Console(soft_wrap=True)
    results = []
    try:
        data = cli.prepare()
        for engine in ENGINES:
            settings = cli.settings(engine)
            console.print(f"{settings.model} on {engine}: {data}")
            results.append(run_apart(settings, data))
    except InputError as error:
        sys.exit(f"compare: {error}")
    # Imported only now: the libraries read their environment, and importing takes seconds.
    from transformers import AutoTokenizer

    from asynct_evals import comparison, report

    tokenizer = AutoTokenizer.from_pretrained(settings.model)
    compared = comparison.compare(*results, decode=tokenizer.decode)
    console.print(*report.comparison_tables(compared))
    path = report.save(report.comparison_to_json(compared), model_cli.output(), "compare")
    console.print(f"Report: {path}")


if __name__ == "__main__":
    app.run(main)
