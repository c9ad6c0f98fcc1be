"""What Megatron calls AsyncT's tensors: the one table, to be changed for another naming."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch

from asynct_model.checkpoint import expected_tensors
from asynct_model.configuration import AsyncTConfig
from asynct_model.megatron.layout import FusedGateUp, FusedQKV, Layout, PaddedVocabulary

EMBEDDING = "embedding.word_embeddings.weight"
OUTPUT = "output_layer.weight"
LAYERS = "decoder.layers."

_WHOLE = Layout()  # the same on every rank
_ROWS = Layout(axis=0)
_COLUMNS = Layout(axis=1)


@dataclass(frozen=True)
class Entry:
    """A Megatron tensor and the Hugging Face tensors that it is made of.

    Attributes:
        names: Megatron's; the first is written, all are read.
        parts: Hugging Face's, in the order in which `layout` fuses them.
        layout: how they are fused, and cut among tensor-parallel ranks.
    """

    names: tuple[str, ...]
    parts: tuple[str, ...]
    layout: Layout = _WHOLE

    @property
    def name(self) -> str:
        return self.names[0]


def _layer(config: AsyncTConfig) -> list[Entry]:
    """The table, for what each layer has. Later names of a line are of other module layouts:
    norms inside the linear layer that follows, or with the scale named as RMSNorm's."""
    groups = config.num_key_value_heads
    qkv = FusedQKV(groups=groups, queries=config.num_attention_heads // groups)
    return [
        _dyht("input_layernorm.alpha", "input_layernorm.alpha",
              "self_attention.linear_qkv.layer_norm_alpha"),
        _dyht("input_layernorm.gamma", "input_layernorm.gamma", "input_layernorm.weight",
              "self_attention.linear_qkv.layer_norm_weight"),
        Entry(("self_attention.linear_qkv.weight",),
              tuple(f"self_attn.{part}_proj.weight" for part in "qkv"), qkv),
        _dyht("self_attn.q_norm.alpha", "self_attention.q_layernorm.alpha"),
        _dyht("self_attn.q_norm.gamma", "self_attention.q_layernorm.gamma",
              "self_attention.q_layernorm.weight"),
        _dyht("self_attn.k_norm.alpha", "self_attention.k_layernorm.alpha"),
        _dyht("self_attn.k_norm.gamma", "self_attention.k_layernorm.gamma",
              "self_attention.k_layernorm.weight"),
        _per_head("sigma"),
        _per_head("alpha"),
        _per_head("gamma"),
        Entry(("self_attention.linear_proj.weight",), ("self_attn.o_proj.weight",), _COLUMNS),
        _dyht("post_attn_layernorm.alpha", "post_attn_layernorm.alpha",
              "post_self_attn_layernorm.alpha"),
        _dyht("post_attn_layernorm.gamma", "post_attn_layernorm.gamma",
              "post_attn_layernorm.weight", "post_self_attn_layernorm.gamma",
              "post_self_attn_layernorm.weight"),
        _dyht("pre_mlp_layernorm.alpha", "pre_mlp_layernorm.alpha",
              "mlp.linear_fc1.layer_norm_alpha"),
        _dyht("pre_mlp_layernorm.gamma", "pre_mlp_layernorm.gamma", "pre_mlp_layernorm.weight",
              "mlp.linear_fc1.layer_norm_weight"),
        Entry(("mlp.linear_fc1.weight",), ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
              FusedGateUp()),
        Entry(("mlp.linear_fc2.weight",), ("mlp.down_proj.weight",), _COLUMNS),
    ]  # fmt: skip


def _outer(config: AsyncTConfig, padded_vocab: int) -> tuple[list[Entry], list[Entry]]:
    """The table, for what comes before the layers and after them."""
    vocabulary = PaddedVocabulary(tokens=config.vocab_size, padded=padded_vocab)
    final = [
        _dyht("model.norm.alpha", "decoder.final_layernorm.alpha"),
        _dyht("model.norm.gamma", "decoder.final_layernorm.gamma",
              "decoder.final_layernorm.weight"),
    ]  # fmt: skip
    if not config.tie_word_embeddings:
        final.append(Entry((OUTPUT,), ("lm_head.weight",), vocabulary))
    return [Entry((EMBEDDING,), ("model.embed_tokens.weight",), vocabulary)], final


def pieces(config: AsyncTConfig, padded_vocab: int) -> list[list[Entry]]:
    """The entries of a model, under full names, in pieces: the embedding, each layer, the end."""
    before, after = _outer(config, padded_vocab)
    layer = _layer(config)
    return [
        before,
        *(
            [
                replace(
                    entry,
                    names=tuple(f"{LAYERS}{index}.{name}" for name in entry.names),
                    parts=tuple(f"model.layers.{index}.{part}" for part in entry.parts),
                )
                for entry in layer
            ]
            for index in range(config.num_hidden_layers)
        ),
        after,
    ]


def shard_shapes(
    config: AsyncTConfig, padded_vocab: int, ranks: int
) -> dict[str, tuple[int, ...]]:
    """Name -> shape of what each tensor-parallel rank of `ranks` holds."""
    parts = expected_tensors(config)
    shapes = {}
    for entry in (entry for piece in pieces(config, padded_vocab) for entry in piece):
        fused = entry.layout.fuse([torch.empty(parts[part], device="meta") for part in entry.parts])
        shapes[entry.name] = tuple(entry.layout.shard(fused, ranks)[0].shape)
    return shapes


def by_first_name(found: Iterable[str], config: AsyncTConfig) -> dict[str, str]:
    """An entry's first name -> which of its names was found; what no entry has keeps its name.

    Raises:
        ValueError: a tensor is there under two names.
    """
    first = {
        name: entry.name
        for piece in pieces(config, config.vocab_size)
        for entry in piece
        for name in entry.names
    }
    names: dict[str, str] = {}
    for name in found:
        if other := names.get(first.get(name, name)):
            raise ValueError(f"{other} and {name} are names of the same tensor")
        names[first.get(name, name)] = name
    return names


def _dyht(part: str, *names: str) -> Entry:
    return Entry(names, (part,))


def _per_head(parameter: str) -> Entry:
    """A parameter of the gate, one value for each query head."""
    names = (f"self_attention.core_attention.{parameter}", f"self_attention.{parameter}")
    return Entry(names, (f"self_attn.{parameter}",), _ROWS)
