"""Copies of data sets on disk: what is read in the place of the hub."""

from __future__ import annotations

import pathlib

import datasets

from asynct_evals.data import InputError

# Suffix of a file -> the reader of `datasets`.
_READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}


def read(path: pathlib.Path, *, subset: str | None, asked: str) -> datasets.DatasetDict:
    """The splits of a copy.

    Args:
      path: a file (then it is the split `asked`), a folder that `datasets` saved, or one with a
        file or more a split, named train.jsonl or test-00000-of-00001.parquet, at its top, in
        data/ or in a folder named as the subset: so the hub's repositories are laid out.
      subset: the data set's part, as the hub names it.
      asked: the split whose problems are asked.

    Raises:
      InputError: nothing that can be read is there, or not the split that is asked.
    """
    if path.is_file():
        files = {asked: [path]}
        if path.suffix not in _READERS:
            raise InputError(f"{path}: expected a file named {_wanted('*')}")
    elif (path / "dataset_dict.json").is_file():
        return _checked(datasets.load_from_disk(str(path)), path, asked)
    elif path.is_dir():
        files = _files_of_splits(path, subset)
    else:
        raise InputError(f"{path}: no such file or folder")
    loaded = datasets.DatasetDict()
    for split, paths in files.items():
        if not all(p.stat().st_size for p in paths):
            raise InputError(f"a file of {split!r} in {path} is empty")
        try:
            loaded[split] = datasets.load_dataset(
                _READERS[paths[0].suffix], data_files=[str(p) for p in paths], split="train"
            )
        except (OSError, ValueError, datasets.exceptions.DatasetGenerationError) as error:
            raise InputError(f"{paths[0]}: cannot be read ({error})") from error
    return _checked(loaded, path, asked)


def _files_of_splits(folder: pathlib.Path, subset: str | None) -> dict[str, list[pathlib.Path]]:
    for place in filter(pathlib.Path.is_dir, (folder / (subset or ""), folder / "data", folder)):
        found: dict[str, list[pathlib.Path]] = {}
        for path in sorted(place.iterdir()):
            if path.suffix in _READERS:
                found.setdefault(path.name.split("-")[0].split(".")[0], []).append(path)
        if found:
            return found
    raise InputError(f"{folder} holds no {_wanted('train')}, {_wanted('test')} or the like")


def _wanted(stem: str) -> str:
    return "/".join(stem + suffix for suffix in _READERS)


def _checked(
    splits: datasets.DatasetDict, path: pathlib.Path, asked: str
) -> datasets.DatasetDict:
    if asked not in splits:
        raise InputError(f"{path} holds {', '.join(sorted(splits))}, but {asked!r} is asked")
    return splits
