"""The AsyncT model; importing the package makes transformers know it."""

from transformers import AutoConfig, AutoModelForCausalLM

from asynct_model.configuration import AsyncTConfig
from asynct_model.modeling import AsyncTForCausalLM

AutoConfig.register(AsyncTConfig.model_type, AsyncTConfig, exist_ok=True)
AutoModelForCausalLM.register(AsyncTConfig, AsyncTForCausalLM, exist_ok=True)

__all__ = ["AsyncTConfig", "AsyncTForCausalLM"]
