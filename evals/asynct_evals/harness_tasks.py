"""lm-eval's tasks by name, asked on copies of their data sets where there are some."""

from __future__ import annotations

import difflib
import pathlib
from collections.abc import Mapping, Sequence

import datasets
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml
from lm_eval.tasks.manager import TaskDict

from asynct_evals import copies, task
from asynct_evals.data import InputError

# What a configuration calls the splits from which few-shot examples can come.
_EXAMPLES = ("fewshot_split", "training_split", "validation_split")


def load(
    manager: TaskManager,
    names: Sequence[str],
    copied: Mapping[str, pathlib.Path],
    *,
    num_fewshot: int | None,
    seed: int,
) -> TaskDict:
    """The tasks (or groups, or tags), ready to be evaluated.

    Args:
      names: as lm-eval has them.
      copied: task -> its data set's copy (`copies.read`); all others are the hub's.
      num_fewshot: examples in each prompt, by default as the task has it.
      seed: draws each prompt's examples.

    Raises:
      InputError: there is no such task, or its data cannot be had.
    """
    for name in (*names, *copied):
        if name not in manager.task_index:
            near = ", ".join(difflib.get_close_matches(name, manager.all_tasks))
            raise InputError(f"lm-eval has no task {name!r}" + (f": is it {near}?" if near else ""))
    if strange := copied.keys() - set(names):
        raise InputError(f"--data is given for {', '.join(sorted(strange))}, which is not asked")
    loaded = TaskDict(tasks={}, groups={}, group_map={})
    for name in names:
        if name in copied:
            loaded["tasks"][name] = _on_copy(manager, name, copied[name], num_fewshot)
        else:
            for key, found in _from_hub(manager, name).items():
                loaded[key].update(found)
    for each in loaded["tasks"].values():
        if num_fewshot is not None:
            each.set_config("num_fewshot", num_fewshot)
        each.set_fewshot_seed(seed)
    return loaded


def _from_hub(manager: TaskManager, name: str) -> TaskDict:
    try:
        return manager.load([name])
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise InputError(
            f"the data of {name} is neither in the local cache nor can it be fetched. "
            f"{_remedy(manager, name)} ({error})"
        ) from error


def _on_copy(manager: TaskManager, name: str, path: pathlib.Path, num_fewshot: int | None):
    entry = manager.task_index[name]
    if entry.kind.name != "TASK":
        raise InputError(f"--data {name}={path}: {name} is no single task of YAML alone")
    config = load_yaml(entry.yaml_path)
    asked = config.get("test_split") or config.get("validation_split")
    try:
        splits = copies.read(path, subset=config.get("dataset_name"), asked=asked)
    except InputError as error:
        raise InputError(f"--data {name}: {error}. {_remedy(manager, name)}") from error
    for key in _EXAMPLES:
        if config.get(key) not in splits:
            config.pop(key, None)
    if "samples" not in (config.get("fewshot_config") or {}):
        pool = next((config[key] for key in _EXAMPLES if config.get(key, asked) != asked), asked)
        if pool == asked:  # only of splits named so does lm-eval leave out the very problem
            config |= {"fewshot_split": asked, "test_split": asked}
        shots = config.get("num_fewshot", 0) if num_fewshot is None else num_fewshot
        if len(splits[pool]) < shots + (pool == asked):
            raise InputError(
                f"--data {name}={path}: {shots} examples are to be drawn from {pool!r}, which "
                f"has {len(splits[pool])} problems"
            )
    return task.build_on(config, splits)


def _remedy(manager: TaskManager, name: str) -> str:
    """What to fetch, and how to give it."""
    path = manager.task_index[name].yaml_path
    source = path and load_yaml(path, resolve_func=False).get("dataset_path")
    if not source:  # a group or a tag
        return f"Run where the hub can be reached, or ask the tasks of {name} by name, with --data"
    return (
        f"Where there is a network, `hf download --repo-type dataset {source} --local-dir DIR`; "
        f"then give --data {name}=DIR"
    )
