"""A Qwen3 without its weights: enough for vLLM to run the shape on random ones."""

import json
import pathlib

# The 1.7B model's.
_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 2048,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 6144,
    "vocab_size": 151936,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "max_position_embeddings": 40960,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 151643,
    "eos_token_id": 151645,
}

# What `write` can make different: the sizes that decide a model's speed.
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "head_dim", "intermediate_size", "vocab_size")


def write(folder: pathlib.Path, **sizes: int) -> pathlib.Path:
    """Writes config.json into `folder`, which it returns: the 1.7B shape, or that with other SIZES.

    Raises:
      ValueError: a name is not one of SIZES.
    """
    if unknown := sizes.keys() - set(SIZES):
        raise ValueError(f"{', '.join(sorted(unknown))}: sizes are {', '.join(SIZES)}")
    (folder / "config.json").write_text(json.dumps(_CONFIG | sizes, indent=1))
    return folder
