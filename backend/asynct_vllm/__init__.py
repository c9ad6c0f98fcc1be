"""AsyncT's attention backend for vLLM.

The model gives `asynct_vllm.backend.AsyncTBackend` to its attention layers. Once a step the builder
turns the scheduler's tensors into one frozen metadata object and one `Plan`; every layer then only
executes the plan.
"""
