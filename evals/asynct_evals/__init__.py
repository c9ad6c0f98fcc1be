"""Evaluation of AsyncT (or any Hugging Face model) by lm-eval, on vLLM or Hugging Face."""
