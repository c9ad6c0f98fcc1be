"""Reads Megatron's pickles, which name classes of Megatron, numpy and others, and runs none.

What is not known here becomes an `Unknown` of the same attributes.
"""

import importlib
import pickle
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import Metadata
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

_CHECKPOINT = "torch.distributed.checkpoint"
_SHARDED = "torch.distributed._shard.sharded_tensor.metadata"
_METADATA_CLASSES = {
    *((f"{_CHECKPOINT}.metadata", name) for name in (
        "Metadata", "MetadataIndex", "ChunkStorageMetadata", "TensorStorageMetadata",
        "BytesStorageMetadata", "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING",
    )),
    (f"{_CHECKPOINT}.filesystem", "_StorageInfo"),
    (_SHARDED, "TensorProperties"),
    (_SHARDED, "MEM_FORMAT_ENCODING"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
}  # fmt: skip


class Unknown:
    """An object of a class that is not known here."""

    def __init__(self, *args: Any):
        pass

    def __setstate__(self, state: Any):
        if isinstance(state, dict):
            self.__dict__.update(state)


def load(path: Path) -> Any:
    """What torch.save wrote to `path`, its tensors mapped from the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is cut short or damaged.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        with safe_globals([Namespace]):
            unknown = [(Unknown, name) for name in get_unsafe_globals_in_checkpoint(path)]
            with safe_globals(unknown):
                return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path} is cut short or damaged: {error}") from error


def load_metadata(path: Path) -> Metadata:
    """The table of contents of a torch.distributed checkpoint; raises as `load` does."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing")
    try:
        with path.open("rb") as file:
            metadata = _MetadataUnpickler(file).load()
        _ = metadata.state_dict_metadata, metadata.storage_data  # both must be there
        return metadata
    except Exception as error:  # a damaged pickle can raise anything
        raise ValueError(f"{path} is cut short or damaged: {error}") from error


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = (module, name) in _METADATA_CLASSES
        if known or module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(importlib.import_module(module), name)
        return Unknown
