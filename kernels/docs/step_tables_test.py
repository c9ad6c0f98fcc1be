"""How a scenario's time is put together from a profiled slice, and what a lever does to it."""

import pytest
import step_tables


@pytest.fixture
def scenario():
    """Two decode steps of 100 us, 80 of them busy, after a prefill of 300 us."""
    kinds = {"gemm": {"us": 50.0}, "attention": {"us": 30.0}}
    return {
        "name": "made up", "requests": 2, "prompt_tokens": 10, "output_tokens": 3,
        "wall": {"wall_s": 500e-6, "decode_step_us": 100.0},
        "sequence": [[2, 40, 0, 0], [0, 0, 2, 2]],
        "phases": {
            "prefill": {"tokens": 40, "kinds": {"attention": {"us": 120.0}}},
            "decode": {"tokens": 2, "kinds": kinds, "busy_us": 80.0, "launches": 10},
        },
    }


def test_a_slice_is_scaled_to_the_scenario(scenario):
    times = step_tables.gpu_times(scenario)
    assert times["decode", "GEMM"] == 100.0 and times["decode", "attention"] == 60.0
    # The slice's prompts are twice as long as the scenario's.
    assert times["prefill", "attention"] == 60.0


def test_a_lever_takes_its_share(scenario):
    levers = (step_tables.Lever({("decode", "attention"): 0.5, ("prefill", "attention"): 0.5}),)
    assert step_tables.ratio(scenario, levers) == pytest.approx(1 - (30 + 30) / 500)


def test_a_launch_less_saves_what_lies_between_launches(scenario):
    # 20 us idle over 10 launches, 28 launches fewer, 2 steps.
    levers = (step_tables.Lever({}, nodes=1),)
    assert step_tables.ratio(scenario, levers) == pytest.approx(1 - 28 * 2 * 2 / 500)


def test_nothing_changed_is_one(scenario):
    assert step_tables.ratio(scenario, ()) == 1.0
