"""Megatron's distributed checkpoints (--ckpt-format torch_dist), read and written by one process.

They are of torch.distributed.checkpoint's format: .metadata lists each tensor's chunks and where in
the files __N_M.distcp they are. Tensors are whole (no rank's), layers mostly stacked: one tensor
`decoder.layers.NAME` with the layers as its first dimension.
"""

import json
import math
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.default_planner import create_default_global_save_plan
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

from asynct_model.megatron import arguments, unpickling
from asynct_model.megatron.fused import FusedTensors
from asynct_model.megatron.names import LAYERS, Entry
from asynct_model.megatron.source import IGNORED_SUFFIX, Source

METADATA = ".metadata"
_COMMON = "common.pt"
_CONFIG = "metadata.json"
_NOT_THE_MODEL = ("optimizer.", "chained_", "rng_state", "rerun_state_machine_state", "opt_param_")
# Gate and up under names of their own, as newer versions save them.
_GATE, _UP = "mlp.linear_fc1.weight_w", "mlp.linear_fc1.weight_v"
_BACKENDS = dict(
    sharded_backend="torch_dist",
    sharded_backend_version=1,
    common_backend="torch",
    common_backend_version=1,
)


@dataclass(frozen=True)
class _Slice:
    """Where a tensor is: a stored tensor, or one layer of it."""

    key: str
    layer: int | None
    shape: tuple[int, ...]

    @property
    def chunk(self) -> ChunkStorageMetadata:
        """The part of the stored tensor."""
        offsets = () if self.layer is None else (self.layer,)
        return ChunkStorageMetadata(
            offsets=torch.Size((*offsets, *(0 for _ in self.shape))),
            sizes=torch.Size((*(1 for _ in offsets), *self.shape)),
        )


class DistSource(Source):
    """A distributed checkpoint; whole tensors, as a single rank has them.

    Raises:
        FileNotFoundError: a file that .metadata names is missing.
        ValueError: a file is cut short or damaged, or .metadata does not tell of all of a tensor.
    """

    def __init__(self, directory: Path):
        self._directory = directory
        self._metadata = unpickling.load_metadata(directory / METADATA)
        common = directory / _COMMON
        self.args = unpickling.load(common).get("args") if common.exists() else None
        self._stored = {
            key: stored
            for key, stored in self._metadata.state_dict_metadata.items()
            if isinstance(stored, TensorStorageMetadata)
            and not key.startswith(_NOT_THE_MODEL)
            and IGNORED_SUFFIX not in key
        }
        self._check_chunks()
        self._check_files()
        self._slices = _slices(self._stored)
        self.shapes = [{name: _shape(slices) for name, slices in self._slices.items()}]
        self._reader = FileSystemReader(directory)
        self._reader.set_up_storage_reader(self._metadata, is_coordinator=True)

    def read(self, name: str) -> list[torch.Tensor]:
        slices = self._slices[name]
        tensor = torch.empty(_shape(slices), dtype=self._stored[slices[0].key].properties.dtype)
        for part, target in zip(slices, tensor.chunk(len(slices))):
            self._fill(part, target)
        return [tensor]

    def _fill(self, part: _Slice, target: torch.Tensor) -> None:
        stored, chunk = self._stored[part.key], part.chunk
        items = create_read_items_for_chunk_list(part.key, stored, [chunk])
        planner = _IntoTensor(target.view(chunk.sizes))
        try:
            self._reader.read_data(LoadPlan(items), planner).wait()
        except Exception as error:  # a damaged pickle can raise anything
            places = (self._metadata.storage_data[item.storage_index] for item in items)
            files = {place.relative_path for place in places}
            raise ValueError(
                f"{part.key} cannot be read from {', '.join(sorted(files))} in {self._directory}, "
                f"damaged or misplaced: {error}"
            ) from error

    def _check_chunks(self) -> None:
        for key, stored in self._stored.items():
            held = sum(math.prod(chunk.sizes) for chunk in stored.chunks)
            if held != math.prod(stored.size):
                raise ValueError(
                    f"{self._directory / METADATA}: the chunks of {key} hold {held} of its "
                    f"{math.prod(stored.size)} values"
                )
            for chunk in stored.chunks:
                if MetadataIndex(key, chunk.offsets) not in self._metadata.storage_data:
                    raise ValueError(
                        f"{self._directory / METADATA} does not say where {key} is from "
                        f"{list(chunk.offsets)} on"
                    )

    def _check_files(self) -> None:
        ends: dict[str, int] = {}
        for index, place in self._metadata.storage_data.items():
            if index.fqn in self._stored:
                end = place.offset + place.length
                ends[place.relative_path] = max(end, ends.get(place.relative_path, 0))
        for name, end in ends.items():
            path = self._directory / name
            if not path.is_file():
                raise FileNotFoundError(f"{path} is missing")
            if (size := path.stat().st_size) < end:
                raise ValueError(f"{path} is cut short: {size} bytes, must be at least {end}")


def write(directory: Path, tensors: FusedTensors, args: list[Namespace]) -> None:
    """Writes a distributed checkpoint to an iteration's directory, which exists.

    `args` has the arguments of each tensor-parallel rank. The first's are kept, and tensors are in
    as many chunks as those ranks would write. Each piece of the model becomes one file.
    """
    chunks = _Chunks(tensors, len(args))
    plans = [
        SavePlan([item for entry in piece for item in chunks.plan(entry)])
        for piece in tensors.pieces
    ]
    writer = FileSystemWriter(directory)
    writer.set_up_storage_writer(is_coordinator=True)
    plans, metadata = create_default_global_save_plan(plans)
    plans = writer.prepare_global_plan(plans)
    results = [writer.write_data(plan, chunks).wait() for plan in plans]
    torch.save(arguments.saved(args[0]), directory / _COMMON)
    (directory / _CONFIG).write_text(json.dumps(_BACKENDS))
    writer.finish(metadata, results)


class _IntoTensor(DefaultLoadPlanner):
    """Loads into one tensor."""

    def __init__(self, target: torch.Tensor):
        super().__init__()
        self._target = target

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        target = self._target
        for axis, (start, length) in enumerate(zip(read_item.dest_offsets, read_item.lengths)):
            target = target.narrow(axis, start, length)
        return target


class _Chunks(DefaultSavePlanner):
    """Plans the chunks of a model, and gives the writer each when it is about to be written."""

    def __init__(self, tensors: FusedTensors, ranks: int):
        super().__init__()
        self._tensors = tensors
        self._ranks = ranks
        self._planned: dict[MetadataIndex, tuple[Entry, int]] = {}
        self._entry: Entry | None = None
        self._cuts: tuple[torch.Tensor, ...] = ()

    def plan(self, entry: Entry) -> list[WriteItem]:
        """An entry's chunks; a layer's are of the tensor that stacks all layers."""
        meta = self._tensors.meta(entry)
        key, layer = _stacked(entry.name)
        stack = () if layer is None else (self._tensors.layers,)
        items = []
        offset = 0
        for index, cut in enumerate(self._cut(entry, meta)):
            whole = _Slice(key, layer, tuple(cut.shape)).chunk
            offsets = list(whole.offsets)
            if entry.layout.axis is not None:
                offsets[len(stack) + entry.layout.axis] = offset
                offset += cut.shape[entry.layout.axis]
            chunk = ChunkStorageMetadata(torch.Size(offsets), whole.sizes)
            size = torch.Size((*stack, *meta.shape))
            item = WriteItem(
                index=MetadataIndex(key, chunk.offsets),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(chunk, TensorProperties(dtype=meta.dtype), size),
            )
            self._planned[item.index] = entry, index
            items.append(item)
        return items

    def resolve_data(self, write_item: WriteItem) -> torch.Tensor:
        entry, index = self._planned[write_item.index]
        if entry != self._entry:
            self._entry, self._cuts = entry, ()  # the last one's memory goes first
            self._cuts = self._cut(entry, self._tensors.read(entry))
        return self._cuts[index].reshape(write_item.tensor_data.chunk.sizes)

    def _cut(self, entry: Entry, tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if entry.layout.axis is None:
            return (tensor,)
        return tensor.chunk(self._ranks * entry.layout.blocks, entry.layout.axis)


def _slices(stored: dict[str, TensorStorageMetadata]) -> dict[str, list[_Slice]]:
    """Name -> where its tensor is, or the halves of it."""
    slices: dict[str, list[_Slice]] = {}
    for key in sorted(stored, key=lambda key: key.endswith(_UP)):  # gate goes before up
        size = tuple(stored[key].size)
        name = key[:-2] if key.endswith((_GATE, _UP)) else key
        layer_name = name.removeprefix(LAYERS)
        if name.startswith(LAYERS) and size and not layer_name.partition(".")[0].isdecimal():
            for layer in range(size[0]):
                place = _Slice(key, layer, size[1:])
                slices.setdefault(f"{LAYERS}{layer}.{layer_name}", []).append(place)
        else:
            slices.setdefault(name, []).append(_Slice(key, None, size))
    for name, places in slices.items():
        if any(place.shape != places[0].shape for place in places):
            raise ValueError(f"the halves of {name} are {[list(place.shape) for place in places]}")
    return slices


def _shape(slices: list[_Slice]) -> tuple[int, ...]:
    if len(slices) == 1:
        return slices[0].shape
    first, *other = slices[0].shape
    return (first * len(slices), *other)


def _stacked(name: str) -> tuple[str, int | None]:
    """The stored tensor's key and the layer in it."""
    if not name.startswith(LAYERS):
        return name, None
    layer, _, rest = name.removeprefix(LAYERS).partition(".")
    return LAYERS + rest, int(layer)
