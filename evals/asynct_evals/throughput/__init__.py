"""The throughput suite: AsyncT against a softmax model of the same shape, both served by vLLM."""
