"""How much the gate serves: on a GPU, and on a CPU to see the same code work."""

from __future__ import annotations

import dataclasses
from typing import Any

from scenarios import Scenario


@dataclasses.dataclass(frozen=True)
class Scale:
    """Sizes of a run.

    shape: fields of the random model's AsyncTConfig.
    answers, chunk: what every path answers, and the most tokens of a step: its prompts surround a
      chunk and a page, and one is longer than all problems.
    problems: asked of the tiny checkpoint.
    timed, rounds, graphs: what both sides are timed on, how often, and by which graphs.
    min_speed: of the softmax model's throughput, what ours must reach.
    """

    shape: dict[str, Any]
    answers: Scenario
    chunk: int
    problems: int
    timed: tuple[Scenario, ...]
    rounds: int
    graphs: str
    min_speed: float


GPU = Scale(
    shape=dict(
        head_dim=128, hidden_size=1024, intermediate_size=3072, num_hidden_layers=6,
        num_attention_heads=8, num_key_value_heads=4, vocab_size=8192,
    ),
    answers=Scenario("answers", ((16376, 8), (5000, 8), (1500, 8), (1024, 8), (65, 8), (17, 8),
                                 (1, 8))),
    chunk=1024,
    problems=200,
    timed=(Scenario.uniform("prefill", 8, 2048, 1), Scenario.uniform("decode", 32, 512, 64)),
    rounds=10,
    graphs="default",
    min_speed=0.8,
)  # fmt: skip
CPU = Scale(
    shape=dict(
        head_dim=128, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, vocab_size=512,
    ),
    answers=Scenario("answers", ((600, 4), (257, 8), (65, 8), (16, 8), (1, 8))),
    chunk=256,
    problems=4,
    timed=(Scenario.uniform("both", 2, 64, 8),),
    rounds=2,
    graphs="eager",
    min_speed=0.1,
)  # fmt: skip
