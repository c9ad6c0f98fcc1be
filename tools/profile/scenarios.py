"""The workloads that vLLM engines are compared on."""

import dataclasses
import math
import random
from typing import Any


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Requests that come together, each continued by exactly so many tokens.

    Attributes:
        lengths: of each request, tokens of its prompt and tokens to put out.
    """

    name: str
    lengths: tuple[tuple[int, int], ...]

    @classmethod
    def uniform(cls, name: str, requests: int, prompt_tokens: int,
                output_tokens: int) -> "Scenario":
        return cls(name, ((prompt_tokens, output_tokens),) * requests)

    @classmethod
    def mixed(cls, name: str, requests: int, prompt_range: tuple[int, int],
              output_range: tuple[int, int]) -> "Scenario":
        """Lengths drawn by a fixed seed, each power of two of a range as often as the others."""
        draw = random.Random(requests)
        return cls(name, tuple(tuple(round(math.exp(draw.uniform(*map(math.log, bounds))))
                                     for bounds in (prompt_range, output_range))
                               for _ in range(requests)))

    @property
    def outputs(self) -> list[int]:
        """Tokens to put out, by request."""
        return [output for _, output in self.lengths]

    @property
    def longest(self) -> int:
        """The most tokens that a request comes to."""
        return max(map(sum, self.lengths))

    @property
    def decodes(self) -> bool:
        """Whether most of its steps are decodes of all its requests."""
        return min(self.outputs) > 100

    def only_prefill(self) -> "Scenario":
        """The same prompts, continued by one token."""
        return self._with((prompt, 1) for prompt, _ in self.lengths)

    def middle(self, steps: int) -> "Scenario":
        """What is computed around the middle of the outputs, in at most `steps` tokens of each."""
        kept = [(*length, min(length[1], steps)) for length in self.lengths]
        return self._with((prompt + (output - few) // 2, few) for prompt, output, few in kept)

    def as_json(self) -> dict[str, Any]:
        """Name, number of requests, tokens of prompts and outputs: lists where they differ."""
        prompts, outputs = map(list, zip(*self.lengths))
        return {"name": self.name, "requests": len(self.lengths),
                "prompt_tokens": _one_or_all(prompts), "output_tokens": _one_or_all(outputs)}

    def _with(self, lengths) -> "Scenario":
        return dataclasses.replace(self, lengths=tuple(lengths))


def _one_or_all(values: list[int]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else values


SCENARIOS = {scenario.name: scenario for scenario in (
    Scenario.uniform("long_prefill_b4", 4, 2048, 1),
    Scenario.uniform("prefill_heavy_b16", 16, 1024, 8),
    Scenario.uniform("decode_heavy_b32", 32, 128, 256),
    Scenario.uniform("long_decode_b32", 32, 2048, 256),
    Scenario.uniform("balanced_b16", 16, 512, 128),
    Scenario.mixed("mixed_b64", 64, (64, 4096), (16, 256)),
    Scenario.uniform("long_context_b4", 4, 16384, 64),
)}
