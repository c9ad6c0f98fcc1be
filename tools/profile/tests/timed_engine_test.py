"""An engine on the CPU: lengths, log-probabilities, and the trace of one run."""

import gzip
import json
import math

import pytest
import qwen3_shape
from scenarios import Scenario
from timed_engine import Engine

SCENARIO = Scenario("mixed", ((40, 3), (9, 5)))
SHAPE = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32, intermediate_size=96, vocab_size=300)
LOGPROBS = 4


@pytest.fixture(params=[False, True], ids=["one by one", "queued"])
def engine(request, tmp_path):
    engine = Engine(qwen3_shape.write(tmp_path, **SHAPE), tmp_path / "traces",
                    queued=request.param, load_format="dummy", dtype="bfloat16", max_model_len=64,
                    enforce_eager=True)
    yield engine
    engine.close()


def annotations(trace):
    with gzip.open(trace, "rt") as file:
        events = json.load(file)["traceEvents"]
    return [event["name"] for event in events if event.get("cat") == "user_annotation"]


def test_runs_answers_and_profiles(engine, seed):
    assert (engine.layers, engine.vocabulary) == (2, 300)
    assert engine.run(SCENARIO, seed) > 0

    answers = engine.answers(SCENARIO, seed, LOGPROBS)
    assert [len(steps) for steps in answers] == SCENARIO.outputs
    for step in answers[0] + answers[1]:
        assert len(step) == LOGPROBS and next(iter(step)) == max(step, key=step.get)
        assert all(-math.inf < value < 0 for value in step.values())
    assert answers == engine.answers(SCENARIO, seed, LOGPROBS)

    # A trace has the run that it was asked for and no other.
    first, second = (engine.profile(SCENARIO, seed) for _ in range(2))
    assert first != second
    for trace in (first, second):
        steps = [name for name in annotations(trace) if name.startswith("execute_context")]
        print(steps)
        assert sum(int(name.split("(")[1].split(")")[0]) for name in steps) == 40 + 9


def test_other_lengths_than_asked_for_are_an_error(engine, seed):
    too_long = Scenario("too long", ((60, 10),))  # vLLM ends an answer where the context does
    with pytest.raises(RuntimeError, match=r"too long: outputs of \[4\] tokens, not of \[10\]"):
        engine.run(too_long, seed)
