"""Settings of small runs for the suite's tests, a made-up result, and a reference that is wrong."""

import pathlib

from asynct_evals.throughput.contestants import Contestants
from asynct_evals.throughput.paired import Paired
from asynct_evals.throughput.reference import Reference, Verdict
from asynct_evals.throughput.settings import Settings
from asynct_evals.throughput.suite import Result
from asynct_model import AsyncTConfig
from scenarios import Scenario

SHAPE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=32, vocab_size=300, max_position_embeddings=512,
)  # fmt: skip
SCENARIOS = (
    Scenario.uniform("prefill", 3, 70, 1),
    Scenario("decode", ((40, 12), (5, 30), (20, 12))),
)


def settings(**changed) -> Settings:
    """A run of two rounds on the CPU."""
    return Settings(**{
        "gpu": False, "model": "tiny", "shape": AsyncTConfig(**SHAPE), "checkpoint": None,
        "scenarios": SCENARIOS, "rounds": 2, "seconds": 0.0, "dtype": "bfloat16",
        "quantization": None, "graphs": "eager", "async_scheduling": None, "queued": False,
        "full_shape_warm_up": True, "attention_zeros": 0.7, "cache_gib": 0.5, "profile": False,
        "seed": 5,
    } | changed)  # fmt: skip


def result(breakdowns: dict, **changed) -> Result:
    """Made up: ratios of 1.2, 0.8 and 1.0 in the first scenario, 0.5 thrice in the second."""
    return Result(
        settings=settings(**changed),
        contestants=Contestants(pathlib.Path("a"), pathlib.Path("b"), 0.71, {"card": "NVIDIA X1"}),
        verdicts={name: Verdict(0.1, 0.1, 9.0) for name in ("prefill", "decode")},
        timings={"prefill": Paired([1.2, 1.6, 3.0], [1.0, 2.0, 3.0]),
                 "decode": Paired([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])},
        breakdowns=breakdowns,
    )


class WrongReference(Reference):
    """The model of another checkpoint: one of its heads has another sigma."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        for model in (self._exact, self._eager):
            model.model.layers[1].self_attn.sigma.data[2] += 0.5
