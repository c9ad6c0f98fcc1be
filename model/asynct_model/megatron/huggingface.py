"""Hugging Face checkpoints, tensor by tensor: a file of safetensors for each piece of the model."""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from asynct_model import checkpoint
from asynct_model.configuration import AsyncTConfig

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class TensorReader:
    """The tensors of a checkpoint directory, by name; raises as `checkpoint.read_shapes`."""

    def __init__(self, directory: Path):
        self._files = {}
        for path in checkpoint.weight_files(directory):
            file = safe_open(path, framework="pt")
            self._files |= dict.fromkeys(file.keys(), file)

    def read(self, name: str) -> torch.Tensor:
        return self._files[name].get_tensor(name)

    def meta(self, name: str) -> torch.Tensor:
        """The tensor without its values.

        Raises:
            ValueError: its type is none that a model is trained in.
        """
        stored = self._files[name].get_slice(name)
        if stored.get_dtype() not in _DTYPES:
            raise ValueError(f"{name} is {stored.get_dtype()}; allowed are {', '.join(_DTYPES)}")
        return torch.empty(stored.get_shape(), dtype=_DTYPES[stored.get_dtype()], device="meta")


class TensorWriter:
    """Writes a checkpoint in `pieces` files, each when it is given.

    The configuration and the index come last: a checkpoint that was not finished does not load.

    Attributes:
        bytes: written so far.
        dtype: of the first tensor written.
    """

    def __init__(self, directory: Path, pieces: int):
        self._directory = directory
        self._pieces = pieces
        self._files: dict[str, str] = {}
        self._written = 0
        self.bytes = 0
        self.dtype: torch.dtype | None = None

    def write(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Writes the next file."""
        for name, tensor in tensors.items():
            if tensor.dtype not in _DTYPES.values():
                raise ValueError(
                    f"{name} is {tensor.dtype}; allowed are {', '.join(map(str, _DTYPES.values()))}"
                )
            self.dtype = self.dtype or tensor.dtype
        self._written += 1
        file = f"model-{self._written:05d}-of-{self._pieces:05d}.safetensors"
        save_file(dict(tensors), self._directory / file, metadata={"format": "pt"})
        self._files |= dict.fromkeys(tensors, file)
        self.bytes += sum(tensor.nbytes for tensor in tensors.values())

    def finish(self, config: AsyncTConfig) -> None:
        """Writes the configuration and the index."""
        config.save_pretrained(self._directory)
        index = dict(metadata=dict(total_size=self.bytes), weight_map=self._files)
        text = json.dumps(index, indent=2)
        (self._directory / checkpoint.INDEX_FILE).write_text(text + "\n")
