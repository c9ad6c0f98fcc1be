"""Both engines, end to end, on the tiny trained checkpoint."""

import json
import shutil

import lm_eval
import pytest
import torch
from absl import flags
from absl.testing import flagsaver
from asynct_evals import comparison, data, environment, gsm8k, model_cli
from asynct_evals.data import Data, InputError
from asynct_evals.evaluation import STRICT, Result, run
from asynct_evals.settings import Settings
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

PROBLEMS = 8
SHOTS = 2
TINY = model_cli.TINY_CHECKPOINT


@pytest.fixture(autouse=True)
def libraries():
    environment.prepare(offline=True, verbose=False)


@pytest.fixture
def problems(seed) -> Data:
    return data.generated(num_fewshot=SHOTS, limit=PROBLEMS, seed=seed)


def evaluate(engine: str, problems: Data, seed: int, model=TINY) -> Result:
    return run(Settings(model, engine, num_fewshot=SHOTS, seed=seed), problems)


def compare(first: Result, second: Result) -> comparison.Comparison:
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    return comparison.compare(first, second, decode=tokenizer.decode)


def test_the_engines_solve_the_problems_and_agree(problems, seed):
    vllm, hf = (evaluate(engine, problems, seed) for engine in ("vllm", "hf"))
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    for result in (vllm, hf):
        assert [s.question for s in result.samples] == [p.question for p in problems.problems]
        assert result.scores[STRICT].value >= 0.75
        assert result.scores[STRICT].value == sum(s.correct[STRICT] for s in result.samples) / 8
        for sample in result.samples:
            text = tokenizer.decode(sample.generation.tokens)
            assert text.startswith(sample.output)
            assert text.endswith(("Question:", tokenizer.eos_token))
    compared = compare(vllm, hf)
    assert len(compared.judged_differently) <= 1
    assert compared.token_agreement > 0.8


def test_a_damaged_checkpoint_shows_in_the_comparison(problems, seed, tmp_path):
    shutil.copytree(TINY, tmp_path / "damaged", symlinks=False)
    weights = load_file(tmp_path / "damaged" / "model.safetensors")
    weights["model.layers.0.self_attn.sigma"] = torch.zeros_like(
        weights["model.layers.0.self_attn.sigma"]
    )
    save_file(weights, tmp_path / "damaged" / "model.safetensors", metadata={"format": "pt"})
    whole = evaluate("hf", problems, seed)
    damaged = evaluate("hf", problems, seed, tmp_path / "damaged")
    assert compare(whole, whole).divergences == []
    assert compare(whole, damaged).divergences


def test_a_checkpoint_that_cannot_be_read_is_refused(problems, seed, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "nonsense"}')
    with pytest.raises(InputError, match=f"--model {tmp_path}: .*nonsense"):
        evaluate("vllm", problems, seed, tmp_path)


@pytest.mark.parametrize("left_out", ["by the engine", "by the scoring"])
def test_a_run_with_fewer_answers_than_problems_fails(problems, seed, monkeypatch, left_out):
    whole = lm_eval.evaluate

    def partial(engine, tasks):
        outcome = whole(engine, tasks, limit=PROBLEMS - 1 if left_out == "by the engine" else None)
        kept = [s for s in outcome["samples"]["gsm8k"] if s["doc_id"] < PROBLEMS - 1]
        return outcome | {"samples": {"gsm8k": kept}}

    monkeypatch.setattr(lm_eval, "evaluate", partial)
    with pytest.raises(RuntimeError, match="8 problems were asked.*scored 7"):
        evaluate("hf", problems, seed)


def test_the_program_leaves_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    with flagsaver.flagsaver():
        flags.FLAGS(["gsm8k", "--engine=hf", "--limit=3", "--num_fewshot=1", "--output=out"])
        gsm8k.main(["gsm8k"])
    (path,) = (tmp_path / "out").glob("gsm8k-*.json")
    assert str(path) in capsys.readouterr().out
    assert len(json.loads(path.read_text())["samples"]) == 3


@pytest.mark.parametrize("broken", [False, True])
def test_an_accuracy_that_is_asked_for_is_a_gate(tmp_path, monkeypatch, broken):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    whole = lm_eval.evaluate

    def wrong(engine, tasks):
        outcome = whole(engine, tasks)
        outcome["results"]["gsm8k"][f"exact_match,{STRICT}"] = 0.4
        return outcome

    if broken:
        monkeypatch.setattr(lm_eval, "evaluate", wrong)
    with flagsaver.flagsaver():
        flags.FLAGS(["gsm8k", "--engine=hf", "--limit=2", "--num_fewshot=1", "--at_least=0.5"])
        if broken:
            with pytest.raises(SystemExit, match="accuracy 0.400 is below --at_least 0.5"):
                gsm8k.main(["gsm8k"])
        else:
            gsm8k.main(["gsm8k"])
    assert len(list((tmp_path / "results").glob("gsm8k-*.json"))) == 1
