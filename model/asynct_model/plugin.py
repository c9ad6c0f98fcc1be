"""The vLLM plugin: makes vLLM know AsyncT's configuration, model and attention backend.

vLLM calls `register` through the entry point group `vllm.general_plugins` once in each of its
processes (front end, engine core, workers, model inspection).
"""


def register() -> None:
    """Registers AsyncT with transformers and vLLM. Re-entrant, and touches no device."""
    from vllm import ModelRegistry
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    import asynct_model  # noqa: F401  registers the configuration and the Hugging Face model
    from asynct_vllm import metrics

    # By name: a class given here would be imported, with all its layers, in every process.
    ModelRegistry.register_model("AsyncTForCausalLM", "asynct_model.vllm_model:AsyncTForCausalLM")
    register_backend(AttentionBackendEnum.CUSTOM, "asynct_vllm.backend.AsyncTBackend")
    metrics.expose()
