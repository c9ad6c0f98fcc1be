"""The small model's configuration."""

from asynct_model import AsyncTConfig

from asynct_tiny.tokenizer import EOS_ID, MAX_LENGTH, PAD_ID, VOCAB_SIZE


def tiny_config(**overrides) -> AsyncTConfig:
    """4.2 million parameters: 8.3 MB in bfloat16."""
    fields = dict(
        vocab_size=VOCAB_SIZE,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=640,
        max_position_embeddings=MAX_LENGTH,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.05,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
    )
    return AsyncTConfig(**{**fields, **overrides})
