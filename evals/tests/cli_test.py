"""The programs: flags to settings and problems, and bad input to one clear line."""

import pytest
from absl import flags
from absl.testing import flagsaver
from asynct_evals import cli, compare, environment, gsm8k, model_cli
from asynct_tiny import problems as generator


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Runs as `bazel run` does: started elsewhere, with the user's folder in the environment."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(environment, "prepare", lambda **_: None)
    with flagsaver.flagsaver():
        yield tmp_path


@pytest.fixture
def problems(home, seed):
    problems = generator.generate(12, seed, "test")
    generator.write_jsonl(home / "problems.jsonl", problems)
    return problems


def parse(*arguments: str) -> None:
    flags.FLAGS(["program", *arguments])


def failure(*arguments: str, main=gsm8k.main) -> str:
    """The line with which the program ends."""
    parse(*arguments)
    with pytest.raises(SystemExit) as end:
        main(["program"])
    return str(end.value.code)


@pytest.fixture
def checkpoint(home):
    (home / "mine").mkdir()
    (home / "mine" / "config.json").write_text("{}")


def test_the_default_is_the_tiny_checkpoint_on_200_generated_problems():
    parse()
    assert cli.settings("vllm").model == model_cli.TINY_CHECKPOINT
    assert cli.settings("vllm").num_fewshot == 8
    data = cli.prepare()
    assert len(data.problems) == 200
    assert str(data) == "200 problems (generated, seed 1234)"


def test_the_tiny_checkpoint_by_another_path_is_still_the_tiny_one(home):
    (home / "linked").symlink_to(model_cli.TINY_CHECKPOINT)
    parse("--model", "linked", "--limit", "3")
    assert cli.prepare().source.startswith("generated")


def test_paths_are_the_users(home, problems, checkpoint):
    parse("--data", "problems.jsonl", "--model", "mine", "--output", "out", "--num_fewshot", "2")
    assert cli.settings("hf").model == home / "mine"
    assert model_cli.output() == home / "out"
    assert cli.prepare().problems == problems[2:]
    parse("--data", str(home / "problems.jsonl"), "--fewshot_data", "problems.jsonl")
    assert cli.prepare().problems == problems


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--limit", "0"], "limit"),
        (["--limit", "-3"], "limit"),
        (["--num_fewshot", "-1"], "num_fewshot"),
        (["--engine", "tensorrt"], "vllm|hf"),
        (["--dtype", "int8"], "float32"),
    ],
)
def test_values_that_no_run_can_have_are_refused_by_flag(arguments, words):
    with pytest.raises(flags.IllegalFlagValueError) as error:
        parse(*arguments)
    assert words in str(error.value) and arguments[1] in str(error.value)


@pytest.mark.parametrize("main", [gsm8k.main, compare.main])
def test_a_broken_line_ends_the_program_with_its_number(home, problems, main):
    with (home / "problems.jsonl").open("a") as file:
        file.write('{"question": "How many?"}\n')
    message = failure("--data", "problems.jsonl", main=main)
    assert "problems.jsonl, line 13: 'answer'" in message


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--data", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--fewshot_data", "problems.jsonl"], "--fewshot_data goes with --data"),
        (["--data", "problems.jsonl", "--num_fewshot", "20"], "only 12 problems"),
        (["--data", "problems.jsonl", "--limit", "5"], "--limit 5: "),
        (["--model", "nothing"], "nothing: no checkpoint there (no config.json)"),
    ],
)
def test_bad_input_ends_the_program_with_what_is_wrong(problems, arguments, words):
    assert words in failure(*arguments)
