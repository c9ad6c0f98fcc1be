"""The backend as vLLM knows it where keys are shared among ranks."""

from asynct_vllm.backend import AsyncTBackend
from asynct_vllm.context_parallel.builder import ContextParallelMetadataBuilder
from asynct_vllm.context_parallel.impl import ContextParallelImpl


class ContextParallelBackend(AsyncTBackend):
    """See AsyncTBackend; the layers store the step's keys themselves."""

    forward_includes_kv_cache_update = True

    @staticmethod
    def get_impl_cls() -> type[ContextParallelImpl]:
        return ContextParallelImpl

    @staticmethod
    def get_builder_cls() -> type[ContextParallelMetadataBuilder]:
        return ContextParallelMetadataBuilder
