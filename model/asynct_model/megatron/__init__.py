"""Megatron-Core checkpoints of AsyncT: names and layouts of their tensors, reading and writing."""
