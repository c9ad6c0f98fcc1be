"""Megatron's plain checkpoints (--ckpt-format torch): a folder mp_rank_TT[_PPP] for each rank.

Files are mapped, not read, and written from scratch files mapped alike, so what stays in memory is
what is being copied.
"""

import re
import tempfile
from argparse import Namespace
from pathlib import Path

import torch

from asynct_model.megatron import arguments, unpickling
from asynct_model.megatron.fused import FusedTensors
from asynct_model.megatron.names import LAYERS
from asynct_model.megatron.source import IGNORED_SUFFIX, Source

FILE = "model_optim_rng.pt"
_FOLDER = re.compile(r"mp_rank_(\d+)(?:_(\d+))?")


class PlainSource(Source):
    """The shards of all tensor- and pipeline-parallel ranks in a directory.

    Raises:
        FileNotFoundError: a rank's file is missing.
        ValueError: a file is cut short or damaged, is of another rank or another iteration than its
            place says, or a tensor is there twice.
    """

    def __init__(self, directory: Path):
        folders = _folders(directory)
        first = unpickling.load(_folder(folders, directory, 0, 0) / FILE)
        self.args = first.get("args")
        ranks, stages = _grid(folders, self.args)
        self._tensors: list[dict[str, torch.Tensor]] = []
        for rank in range(ranks):
            tensors: dict[str, torch.Tensor] = {}
            layers = 0
            for stage in range(stages):
                path = _folder(folders, directory, rank, stage) / FILE
                saved = unpickling.load(path)
                _check_place(path, saved, first, rank, stage)
                stage_tensors, stage_layers = _model(path, saved, layers)
                _merge(tensors, stage_tensors, path)
                layers += stage_layers
            self._tensors.append(tensors)
        self.shapes = [
            {name: tuple(tensor.shape) for name, tensor in tensors.items()}
            for tensors in self._tensors
        ]

    def read(self, name: str) -> list[torch.Tensor]:
        return [tensors[name] for tensors in self._tensors]


def write(directory: Path, tensors: FusedTensors, args: list[Namespace]) -> None:
    """Writes a plain checkpoint to an iteration's directory, which exists.

    `args` has the arguments of each tensor-parallel rank.
    """
    entries = [entry for piece in tensors.pieces for entry in piece]
    states: list[dict[str, torch.Tensor]] = [{} for _ in args]
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        for entry in entries:  # all before the first copy: it leaves memory in one piece
            for rank, shard in enumerate(entry.layout.shard(tensors.meta(entry), len(args))):
                states[rank][entry.name] = _mapped(shard, Path(scratch) / f"{rank}.{entry.name}")
        for entry in entries:
            shards = entry.layout.shard(tensors.read(entry), len(args))
            for state, shard in zip(states, shards, strict=True):
                state[entry.name].copy_(shard)
        for rank, state in enumerate(states):
            folder = directory / f"mp_rank_{rank:02d}"
            folder.mkdir()
            torch.save({**arguments.saved(args[rank]), "model": state}, folder / FILE)


def _folders(directory: Path) -> dict[tuple[int, int], Path]:
    """(tensor-parallel rank, pipeline stage) -> its folder."""
    folders = {}
    for path in directory.glob("mp_rank_*"):
        match = _FOLDER.fullmatch(path.name)
        if not match:
            raise ValueError(f"{path} is not as mp_rank_TT or mp_rank_TT_PPP (expert parallel?)")
        place = int(match[1]), int(match[2] or 0)
        if place in folders:
            raise ValueError(f"{path} and {folders[place]} are of the same rank")
        folders[place] = path
    return folders


def _grid(folders: dict[tuple[int, int], Path], args: Namespace | None) -> tuple[int, int]:
    """Tensor-parallel ranks and pipeline stages: as many as there are, or as the arguments say."""
    found = (1 + max(place[axis] for place in folders) for axis in (0, 1))
    said = (
        getattr(args, f"{axis}_model_parallel_size", None) or 1 for axis in ("tensor", "pipeline")
    )
    ranks, stages = (max(pair) for pair in zip(found, said))
    return ranks, stages


def _folder(folders: dict[tuple[int, int], Path], directory: Path, rank: int, stage: int) -> Path:
    with_stage = any(_FOLDER.fullmatch(path.name)[2] for path in folders.values())
    expected = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if with_stage else "")
    return folders.get((rank, stage), directory / expected)


def _check_place(path: Path, saved: dict, first: dict, rank: int, stage: int) -> None:
    if saved.get("iteration") != first.get("iteration"):
        raise ValueError(
            f"{path} is of iteration {saved.get('iteration')}, the first rank's file of "
            f"{first.get('iteration')}"
        )
    args = saved.get("args")
    ranks, stages, world, saved_by = (
        getattr(args, name, None)
        for name in (
            "tensor_model_parallel_size", "pipeline_model_parallel_size", "world_size", "rank",
        )
    )  # fmt: skip
    if None in (ranks, stages, world, saved_by):
        return  # older files do not say who wrote them
    place = saved_by % ranks, saved_by // (world // stages)
    if place != (rank, stage):
        raise ValueError(
            f"{path} was saved by tensor-parallel rank {place[0]}, pipeline stage {place[1]}"
        )


def _model(path: Path, saved: dict, first_layer: int) -> tuple[dict[str, torch.Tensor], int]:
    """A file's tensors, its layers numbered from `first_layer`, and how many layers it has."""
    if "model0" in saved:
        raise ValueError(f"{path} is of a virtual pipeline (model0, model1, ...), not supported")
    if not isinstance(saved.get("model"), dict):
        raise ValueError(f"{path} holds no model; it has {', '.join(map(str, saved))}")
    tensors = {}
    layers = 0
    for name, tensor in saved["model"].items():
        if name.endswith(IGNORED_SUFFIX):
            continue
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{path}: {name} is no tensor")
        index, dot, rest = name.removeprefix(LAYERS).partition(".")
        if name.startswith(LAYERS) and index.isdecimal():
            layers = max(layers, int(index) + 1)
            name = f"{LAYERS}{first_layer + int(index)}{dot}{rest}"
        tensors[name] = tensor
    return tensors, layers


def _merge(tensors: dict[str, torch.Tensor], stage: dict[str, torch.Tensor], path: Path) -> None:
    if twice := tensors.keys() & stage.keys():
        raise ValueError(f"{path} holds {min(twice)}, which an earlier stage also holds")
    tensors |= stage


def _mapped(meta: torch.Tensor, file: Path) -> torch.Tensor:
    """A tensor like `meta` whose memory is a file's."""
    mapped = torch.from_file(str(file), shared=True, size=meta.numel(), dtype=meta.dtype)
    return mapped.view(meta.shape)
