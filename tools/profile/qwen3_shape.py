"""A Qwen3 1.7B without its weights: enough for vLLM to run the shape on random ones."""

import json
import pathlib

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


def write(folder: pathlib.Path) -> pathlib.Path:
    """Writes config.json into `folder`, which it returns."""
    (folder / "config.json").write_text(json.dumps(_CONFIG, indent=1))
    return folder
