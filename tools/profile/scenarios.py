"""The workloads that vLLM engines are compared on."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Scenario:
    """`requests` prompts of `prompt_tokens`, each continued by exactly `output_tokens`."""

    name: str
    requests: int
    prompt_tokens: int
    output_tokens: int

    @property
    def decodes(self) -> bool:
        """Whether most of its steps are decodes."""
        return self.output_tokens > 100


SCENARIOS = {scenario.name: scenario for scenario in (
    Scenario("long_prefill_b4", 4, 2048, 1),
    Scenario("prefill_heavy_b16", 16, 1024, 8),
    Scenario("decode_heavy_b32", 32, 128, 256),
    Scenario("long_decode_b32", 32, 2048, 256),
)}
