"""Megatron checkpoints made row by row, as an independent word on what Megatron writes."""

from argparse import Namespace
from pathlib import Path

import torch
from asynct_model import AsyncTConfig
from random_checkpoint import random_config, random_tensors
from safetensors.torch import load_file

PADDED = 256  # rows of the vocabulary with padding
ITERATION = 300
_SAME_NAME = ("input_layernorm", "post_attn_layernorm", "pre_mlp_layernorm")


def megatron_config(**fields) -> AsyncTConfig:
    """A small model that up to four ranks can share, and whose vocabulary needs padding."""
    shape = dict(
        vocab_size=250, hidden_size=64, intermediate_size=48, num_attention_heads=8,
        num_key_value_heads=4, head_dim=16, num_hidden_layers=3,
    )  # fmt: skip
    return random_config(**{**shape, **fields})


def mixed_tensors(config: AsyncTConfig, seed: int) -> dict[str, torch.Tensor]:
    """Random weights as in training: matrices in bfloat16, vectors in float32, odd bits in both."""
    tensors = random_tensors(config, seed)
    for name, tensor in tensors.items():
        tensor.view(-1)[0] = -0.0
        tensor.view(-1)[-1] = float("nan")
        tensors[name] = tensor.bfloat16() if tensor.dim() == 2 else tensor
    return tensors


def load_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """All tensors of a Hugging Face checkpoint."""
    tensors = {}
    for file in directory.glob("*.safetensors"):
        tensors |= load_file(file)
    return tensors


def assert_same(tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Names, types and every bit agree."""
    assert tensors.keys() == expected.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == expected[name].dtype, name
        assert tensor.shape == expected[name].shape, name
        bits, expected_bits = (t.contiguous().view(torch.uint8) for t in (tensor, expected[name]))
        assert torch.equal(bits, expected_bits), name


def shards(
    config: AsyncTConfig, tensors: dict[str, torch.Tensor], ranks: int, padded: int = PADDED
) -> list[dict[str, torch.Tensor]]:
    """What each tensor-parallel rank holds, layers numbered through."""
    return [_shard(config, tensors, rank, ranks, padded) for rank in range(ranks)]


def stack_layers(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of all layers stacked, under names without the layer's number."""
    stacked: dict[str, list[torch.Tensor]] = {}
    for name, tensor in state.items():
        parts = name.split(".")
        if parts[1] == "layers":
            stacked.setdefault(".".join(parts[:2] + parts[3:]), []).append(tensor)
    outer = {name: tensor for name, tensor in state.items() if name.split(".")[1] != "layers"}
    return outer | {name: torch.stack(tensors) for name, tensors in stacked.items()}


def arguments(config: AsyncTConfig, ranks: int = 1, stages: int = 1, **other) -> Namespace:
    """Arguments of a run, those that a reader may look at and some more."""
    return Namespace(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        group_query_attention=True,
        num_query_groups=config.num_key_value_heads,
        kv_channels=config.head_dim,
        vocab_size=config.vocab_size,
        padded_vocab_size=PADDED,
        max_position_embeddings=config.max_position_embeddings,
        position_embedding_type="rope",
        rotary_base=int(config.rope_parameters["rope_theta"]),
        rotary_percent=1.0,
        untie_embeddings_and_output_weights=not config.tie_word_embeddings,
        tensor_model_parallel_size=ranks,
        pipeline_model_parallel_size=stages,
        params_dtype=torch.bfloat16,
        lr=3e-4,
        **other,
    )


def save_plain(
    directory: Path,
    config: AsyncTConfig,
    by_rank: list[dict[str, torch.Tensor]],
    stages: int = 1,
    replicas: int = 2,
    extra: dict | None = None,
) -> Path:
    """Writes a plain checkpoint of a run with `replicas` data-parallel replicas; stages of a
    pipeline get one layer each, but the last, which gets the rest."""
    for rank, tensors in enumerate(by_rank):
        for stage in range(stages):
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if stages > 1 else "")
            folder = directory / f"iter_{ITERATION:07d}" / name
            folder.mkdir(parents=True)
            ranks = len(by_rank)
            args = arguments(
                config, ranks, stages,
                rank=rank + ranks * replicas * stage, world_size=ranks * replicas * stages,
            )  # fmt: skip
            saved = dict(
                args=args, checkpoint_version=3.0, iteration=ITERATION,
                model=_stage(tensors, stage, stages), **(extra or {}),
            )  # fmt: skip
            torch.save(saved, folder / "model_optim_rng.pt")
    (directory / "latest_checkpointed_iteration.txt").write_text(str(ITERATION))
    return directory


def _shard(
    config: AsyncTConfig, tensors: dict[str, torch.Tensor], rank: int, ranks: int, padded: int
) -> dict[str, torch.Tensor]:
    def rows(tensor: torch.Tensor) -> torch.Tensor:
        size = len(tensor) // ranks
        return tensor[rank * size : (rank + 1) * size].clone()

    def columns(tensor: torch.Tensor) -> torch.Tensor:
        size = tensor.shape[1] // ranks
        return tensor[:, rank * size : (rank + 1) * size].clone()

    def vocabulary(name: str) -> torch.Tensor:
        missing = torch.zeros(padded - config.vocab_size, config.hidden_size)
        return rows(torch.cat((tensors[name], missing.to(tensors[name].dtype))))

    shard = {"embedding.word_embeddings.weight": vocabulary("model.embed_tokens.weight")}
    for index in range(config.num_hidden_layers):
        source, target = f"model.layers.{index}", f"decoder.layers.{index}"
        shard[f"{target}.self_attention.linear_qkv.weight"] = _qkv(
            config, tensors, f"{source}.self_attn", rank, ranks
        )
        gate, up = (rows(tensors[f"{source}.mlp.{part}_proj.weight"]) for part in ("gate", "up"))
        shard[f"{target}.mlp.linear_fc1.weight"] = torch.cat((gate, up))
        down = tensors[f"{source}.mlp.down_proj.weight"]
        shard[f"{target}.mlp.linear_fc2.weight"] = columns(down)
        shard[f"{target}.self_attention.linear_proj.weight"] = columns(
            tensors[f"{source}.self_attn.o_proj.weight"]
        )
        for part in ("sigma", "alpha", "gamma"):
            shard[f"{target}.self_attention.core_attention.{part}"] = rows(
                tensors[f"{source}.self_attn.{part}"]
            )
        for part in ("alpha", "gamma"):
            for name in _SAME_NAME:
                shard[f"{target}.{name}.{part}"] = tensors[f"{source}.{name}.{part}"]
            for name in "qk":
                shard[f"{target}.self_attention.{name}_layernorm.{part}"] = tensors[
                    f"{source}.self_attn.{name}_norm.{part}"
                ]
    for part in ("alpha", "gamma"):
        shard[f"decoder.final_layernorm.{part}"] = tensors[f"model.norm.{part}"]
    if not config.tie_word_embeddings:
        shard["output_layer.weight"] = vocabulary("lm_head.weight")
    return shard


def _qkv(
    config: AsyncTConfig, tensors: dict[str, torch.Tensor], prefix: str, rank: int, ranks: int
) -> torch.Tensor:
    size = config.head_dim
    groups = config.num_key_value_heads // ranks
    queries = config.num_attention_heads // config.num_key_value_heads
    heads = []
    for group in range(rank * groups, (rank + 1) * groups):
        for head in range(group * queries, (group + 1) * queries):
            heads.append(tensors[f"{prefix}.q_proj.weight"][head * size : (head + 1) * size])
        for part in "kv":
            weight = tensors[f"{prefix}.{part}_proj.weight"]
            heads.append(weight[group * size : (group + 1) * size])
    return torch.cat(heads)


def _stage(tensors: dict[str, torch.Tensor], stage: int, stages: int) -> dict[str, torch.Tensor]:
    held = {}
    for name, tensor in tensors.items():
        parts = name.split(".")
        if parts[1] == "layers":
            place = min(int(parts[2]), stages - 1)
            parts[2] = str(int(parts[2]) - place)
        else:
            place = 0 if parts[0] == "embedding" else stages - 1
        if place == stage:
            held[".".join(parts)] = tensor
    return held
