"""Made-up results for the tests of what is done with them."""

import pathlib

from asynct_evals.engines import Generation
from asynct_evals.evaluation import FLEXIBLE, STRICT, Result, Sample, Score
from asynct_evals.settings import Settings


def sample(number: int, tokens: list[int], *, correct: bool, likeliest=()) -> Sample:
    return Sample(
        id=number,
        question=f"question {number}",
        answer="#### 1",
        output=bytes(tokens).decode(),
        predicted={STRICT: "1", FLEXIBLE: "1"},
        correct={STRICT: correct, FLEXIBLE: True},
        prompt_tokens=10 + number,
        generation=Generation(tokens, list(likeliest)),
    )


def result(engine: str, samples: list[Sample], *, num_fewshot: int = 8) -> Result:
    return Result(
        settings=Settings(pathlib.Path("some/model"), engine, num_fewshot=8, seed=7),
        source="made up",
        num_fewshot=num_fewshot,
        generation={"max_gen_toks": 256},
        dtype="float32",
        max_length=512,
        scores={STRICT: Score(0.75, 0.25), FLEXIBLE: Score(1.0, None)},
        samples=samples,
        load_seconds=1.5,
        run_seconds=2.0,
        machine={"card": "CPU", "torch": "0"},
    )
