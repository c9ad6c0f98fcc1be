"""What served the attention, asked of an engine's processes (`worker_extension_cls`)."""

from asynct_vllm import counters


class CountingWorker:
    """Adds to vLLM's worker, for `LLM.collective_rpc`."""

    def attention_tokens(self) -> dict[str, int]:
        """Tokens by path, of this process's steps; where keys are shared, of those that fill some
        of its own slots."""
        return {path: hits.tokens for path, hits in counters.snapshot().items()}
