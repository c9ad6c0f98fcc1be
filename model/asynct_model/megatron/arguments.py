"""Megatron's command-line arguments, which its checkpoints keep, and the AsyncT configuration."""

from argparse import Namespace
from typing import Any

from asynct_model.configuration import AsyncTConfig

_CHECKPOINT_VERSION = 3.0  # Megatron's since it fuses tensors as layout.py does
VOCAB_MULTIPLE = 128  # Megatron's default of make_vocab_size_divisible_by

# The configuration's field -> Megatron's argument.
_SHAPES = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "ffn_hidden_size",
    "num_attention_heads": "num_attention_heads",
    "head_dim": "kv_channels",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings",
}
# For these the configuration's defaults hold if a checkpoint has none. Megatron knows the first;
# the others, AsyncT's settings and the tokenizer's, are under the configuration's names.
_OPTIONAL = {
    "initializer_range": "init_method_std",
    **{
        name: name
        for name in (
            "attention_window",
            "attention_weights",
            "attention_relu_pre",
            "attention_clip",
            "attention_scale",
            "dyht_clip",
            "scalar_dyht",
            "bos_token_id",
            "eos_token_id",
            "pad_token_id",
        )
    },
}
# Arguments that would make another model of the same tensors.
_FIXED = {
    "position_embedding_type": "rope",
    "rotary_percent": 1.0,
    "rotary_interleaved": False,
    "use_rope_scaling": False,
}


def to_config(args: Namespace) -> AsyncTConfig:
    """The configuration that a checkpoint's arguments describe.

    Raises:
        ValueError: arguments are missing, or describe what AsyncT does not have; all are named.
    """
    needed = [*_SHAPES.values(), "rotary_base", "untie_embeddings_and_output_weights"]
    if missing := [name for name in needed if getattr(args, name, None) is None]:
        raise ValueError(f"the checkpoint's arguments lack {', '.join(missing)}")
    for name, value in _FIXED.items():
        if getattr(args, name, value) != value:
            raise ValueError(
                f"the checkpoint's argument {name} is {getattr(args, name)!r}; AsyncT has {value!r}"
            )
    fields = {field: getattr(args, name) for field, name in _SHAPES.items()}
    fields |= {
        field: getattr(args, name) for field, name in _OPTIONAL.items() if hasattr(args, name)
    }
    grouped = getattr(args, "group_query_attention", False)
    return AsyncTConfig(
        **fields,
        num_key_value_heads=args.num_query_groups if grouped else args.num_attention_heads,
        rope_parameters={"rope_type": "default", "rope_theta": float(args.rotary_base)},
        tie_word_embeddings=not args.untie_embeddings_and_output_weights,
    )


def from_config(config: AsyncTConfig, padded_vocab: int, ranks: int, rank: int) -> Namespace:
    """The arguments of a model trained with `config` by `ranks` tensor-parallel ranks, as `rank`
    saves them."""
    return Namespace(
        **{name: getattr(config, field) for field, name in (_SHAPES | _OPTIONAL).items()},
        **_FIXED,
        group_query_attention=True,
        num_query_groups=config.num_key_value_heads,
        rotary_base=config.rope_parameters["rope_theta"],
        untie_embeddings_and_output_weights=not config.tie_word_embeddings,
        add_bias_linear=False,
        make_vocab_size_divisible_by=VOCAB_MULTIPLE,
        padded_vocab_size=padded_vocab,
        tensor_model_parallel_size=ranks,
        pipeline_model_parallel_size=1,
        world_size=ranks,
        rank=rank,
    )


def saved(args: Namespace) -> dict[str, Any]:
    """What a checkpoint holds beside tensors."""
    return dict(args=args, checkpoint_version=_CHECKPOINT_VERSION, iteration=0)


def differences(config: AsyncTConfig, args: Namespace) -> list[str]:
    """Where a configuration given by hand is not what the checkpoint's arguments say."""
    return [
        f"{field} is {getattr(config, field)!r} as given, not the checkpoint's {name}, "
        f"{getattr(args, name)!r}"
        for field, name in (_SHAPES | _OPTIONAL).items()
        if getattr(args, name, None) is not None and getattr(args, name) != getattr(config, field)
    ]
