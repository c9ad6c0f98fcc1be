"""Converts AsyncT checkpoints between Megatron-Core's and Hugging Face's layouts, by pieces."""

import copy
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers.utils import CONFIG_NAME

from asynct_model import AsyncTForCausalLM, checkpoint
from asynct_model.configuration import AsyncTConfig
from asynct_model.megatron import arguments, dist, plain
from asynct_model.megatron.fused import FusedTensors, Progress, check_dtypes
from asynct_model.megatron.huggingface import TensorReader, TensorWriter
from asynct_model.megatron.layout import same_bits
from asynct_model.megatron.names import (
    EMBEDDING,
    OUTPUT,
    Entry,
    by_first_name,
    pieces,
    shard_shapes,
)
from asynct_model.megatron.source import Source

FORMATS = ("torch_dist", "torch")  # as Megatron's --ckpt-format calls them
_TRACKER = "latest_checkpointed_iteration.txt"
_RELEASE = "release"  # in the place of an iteration: weights that no run of Megatron saved


@dataclass(frozen=True)
class Summary:
    """What was converted: `tensors` Hugging Face tensors of `bytes` bytes.

    Attributes:
        padding: rows of the vocabulary that only Megatron has.
        notes: what a reader should know.
    """

    config: AsyncTConfig
    tensors: int
    bytes: int
    padding: int
    notes: list[str] = field(default_factory=list)


def to_huggingface(
    source_directory: Path,
    output: Path,
    config: AsyncTConfig | None = None,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Converts a Megatron checkpoint to a Hugging Face one.

    Args:
        source_directory: an iteration's directory, or the one that holds it and the tracker file.
        output: a new or empty directory.
        config: the model's; None takes it from the checkpoint's arguments.
        progress: called after each tensor.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: files are cut short, damaged or misplaced, or the tensors are not the model's.
    """
    source = _open(source_directory)
    config, notes = _configuration(source, config)
    found, padded = _check(source, config)
    entries = pieces(config, padded)
    writer = TensorWriter(_new_directory(output), len(entries))
    total, done = sum(map(len, entries)), 0
    for piece in entries:
        tensors: dict[str, torch.Tensor] = {}
        for entry in piece:
            tensors |= _hugging_face_tensors(source, found[entry.name], entry)
            done += 1
            progress(done, total)
        writer.write(tensors)
    if config.eos_token_id is None:
        notes.append("eos_token_id is not known, and config.json has none")
    config.architectures = [AsyncTForCausalLM.__name__]
    config.dtype = writer.dtype
    writer.finish(config)
    checkpoint.check_directory(output, config)
    count = sum(len(entry.parts) for piece in entries for entry in piece)
    return Summary(config, count, writer.bytes, padded - config.vocab_size, notes)


def to_megatron(
    source: Path,
    output: Path,
    checkpoint_format: str = "torch_dist",
    ranks: int = 1,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Converts a Hugging Face checkpoint to one of Megatron, a release in its terms.

    Args:
        source: the checkpoint's directory.
        output: a new or empty directory.
        checkpoint_format: one of FORMATS.
        ranks: tensor-parallel ranks to write for.
        progress: called after each tensor.

    Raises:
        FileNotFoundError: files are missing.
        ValueError: files are cut short or damaged, the tensors are not the model's, or the model
            cannot be cut for so many ranks.
    """
    if checkpoint_format not in FORMATS:
        raise ValueError(f"checkpoint_format is {checkpoint_format!r}; allowed: {FORMATS}")
    if not (source / CONFIG_NAME).is_file():
        raise FileNotFoundError(f"{source / CONFIG_NAME} is missing")
    config = AsyncTConfig.from_pretrained(source)
    checkpoint.check_directory(source, config)
    _check_ranks(config, ranks)
    multiple = arguments.VOCAB_MULTIPLE * ranks
    padded = -(-config.vocab_size // multiple) * multiple
    fused = FusedTensors(TensorReader(source), config, padded, progress)
    args = [arguments.from_config(config, padded, ranks, rank) for rank in range(ranks)]
    directory = _new_directory(output) / _RELEASE
    directory.mkdir()
    write = dist.write if checkpoint_format == "torch_dist" else plain.write
    write(directory, fused, args)
    (output / _TRACKER).write_text(_RELEASE)
    return Summary(config, fused.parts, fused.bytes, padded - config.vocab_size)


def _open(directory: Path) -> Source:
    tracker = directory / _TRACKER
    if tracker.is_file():
        iteration = tracker.read_text().strip()
        folder = f"iter_{int(iteration):07d}" if iteration.isdecimal() else iteration
        directory = directory / folder
    if (directory / dist.METADATA).is_file():
        return dist.DistSource(directory)
    if any(directory.glob("mp_rank_*")):
        return plain.PlainSource(directory)
    raise FileNotFoundError(
        f"{directory} is no Megatron checkpoint: neither {dist.METADATA} nor mp_rank_* is in it"
    )


def _configuration(
    source: Source, config: AsyncTConfig | None
) -> tuple[AsyncTConfig, list[str]]:
    """The configuration given, or the one of the checkpoint's arguments; and where they differ."""
    if source.args is None:
        if config is None:
            raise ValueError("the checkpoint keeps no arguments: it needs a configuration")
        return copy.deepcopy(config), []
    if config is None:
        return arguments.to_config(source.args), []
    return copy.deepcopy(config), arguments.differences(config, source.args)


def _check(source: Source, config: AsyncTConfig) -> tuple[dict[str, str], int]:
    """Checks all ranks' tensors; returns entry's name -> the name in `source`, and the vocabulary's
    rows with padding."""
    ranks = len(source.shapes)
    found = by_first_name(source.shapes[0], config)
    embedding = source.shapes[0].get(EMBEDDING, (0,))
    padded = max(config.vocab_size, embedding[0] * ranks)
    tied_copy = config.tie_word_embeddings and OUTPUT in found
    expected = shard_shapes(config, padded, ranks)
    for rank, shapes in enumerate(source.shapes):
        names = by_first_name(shapes, config)
        renamed = {name: shapes[there] for name, there in names.items()}
        if tied_copy:
            renamed.pop(OUTPUT, None)
        try:
            checkpoint.check_shapes(renamed, expected)
        except ValueError as error:
            raise ValueError(f"tensor-parallel rank {rank} of {ranks}: {error}") from error
        if names != found:
            raise ValueError(f"tensor-parallel ranks 0 and {rank} name their tensors differently")
    if tied_copy:  # a pipeline's last stage has one
        _check_equal(source, EMBEDDING, OUTPUT)
    return found, padded


def _check_equal(source: Source, first: str, second: str) -> None:
    for one, other in zip(source.read(first), source.read(second), strict=True):
        if not same_bits(one, other):
            raise ValueError(f"{second} is not {first}, but the configuration ties them")


def _hugging_face_tensors(source: Source, name: str, entry: Entry) -> dict[str, torch.Tensor]:
    shards = source.read(name)
    check_dtypes(tuple(f"{name} of rank {rank}" for rank in range(len(shards))), shards)
    try:
        whole = entry.layout.merge(shards)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return dict(zip(entry.parts, entry.layout.split(whole), strict=True))


def _check_ranks(config: AsyncTConfig, ranks: int) -> None:
    if ranks < 1:
        raise ValueError(f"ranks is {ranks}; it must be at least 1")
    for name in ("num_key_value_heads", "intermediate_size"):
        if getattr(config, name) % ranks:
            raise ValueError(f"ranks is {ranks}; it must divide {name}, {getattr(config, name)}")


def _new_directory(directory: Path) -> Path:
    if directory.exists() and any(directory.iterdir()):
        raise ValueError(f"{directory} is not empty; what is converted goes to a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    return directory
