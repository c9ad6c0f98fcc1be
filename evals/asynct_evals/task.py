"""lm-eval's own tasks with their data replaced by ours, and how many shots fit the context."""

from __future__ import annotations

import pathlib

import datasets
import lm_eval.tasks
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks._yaml_loader import load_yaml
from transformers import PreTrainedTokenizerBase

from asynct_evals.data import Data, InputError

# Tokens an answer may have: lm-eval's default, made explicit because prompts must leave room.
MAX_GEN_TOKS = 256

_TASKS = pathlib.Path(lm_eval.tasks.__file__).parent


def build(name: str, data: Data) -> ConfigurableTask:
    """The task of lm-eval's `<name>/<name>.yaml`, asked on `data`; no file or network is touched.

    Everything but the data (prompt format, stop strings, filters, metrics) stays lm-eval's.
    """
    config = load_yaml(_TASKS / name / f"{name}.yaml")
    splits = datasets.DatasetDict(
        {
            config[split]: datasets.Dataset.from_list([p._asdict() for p in problems])
            for split, problems in (("fewshot_split", data.fewshot), ("test_split", data.problems))
        }
    )
    config["generation_kwargs"]["max_gen_toks"] = MAX_GEN_TOKS
    return build_on(config, splits)


def build_on(config: dict, splits: datasets.DatasetDict) -> ConfigurableTask:
    """The task of lm-eval's configuration, asked on `splits` and on nothing else."""
    return ConfigurableTask(config=config | {"custom_dataset": lambda **_: splits})


def set_shots(task: ConfigurableTask, num_fewshot: int, seed: int) -> None:
    """Sets the number of few-shot examples and the seed by which each prompt's are drawn."""
    task.set_config("num_fewshot", num_fewshot)
    task.set_fewshot_seed(seed)


def fit(
    task: ConfigurableTask,
    tokenizer: PreTrainedTokenizerBase,
    *,
    num_fewshot: int,
    seed: int,
    room: int,
) -> tuple[int, list[list[int]]]:
    """The most shots, up to num_fewshot, with which every prompt has at most `room` tokens.

    lm-eval would cut longer prompts from the left, mid-example, with a warning only.

    Returns:
      The number of shots, and the tokens of every prompt with it.

    Raises:
      InputError: a prompt is too long even without examples.
    """
    for shots in range(num_fewshot, -1, -1):
        set_shots(task, shots, seed)
        prompts = []
        for doc in task.eval_docs:
            prompts.append(tokenizer(task.fewshot_context(doc, shots)).input_ids)
            if len(prompts[-1]) > room:
                break
        else:
            return shots, prompts
    raise InputError(
        f"problem {len(prompts)} alone has {len(prompts[-1])} tokens, but the model's context "
        f"leaves {room} for a prompt: {task.doc_to_text(doc)[:80]!r}..."
    )
