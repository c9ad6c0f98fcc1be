"""The training loop on the CPU: it learns, and guards itself."""

import math

import pytest
import torch
from asynct_model import AsyncTForCausalLM
from asynct_tiny.corpus import Corpus, Rows
from asynct_tiny.exact_match import complete
from asynct_tiny.initialization import initialize
from asynct_tiny.problems import generate, prompt
from asynct_tiny.sizes import tiny_config
from asynct_tiny.trainer import Optimisation, Trainer, rate_factor

CPU = torch.device("cpu")


def _small_model() -> AsyncTForCausalLM:
    config = tiny_config(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=256,
    )
    model = AsyncTForCausalLM(config)
    initialize(model)
    return model


def test_a_few_problems_are_learnt_by_heart(seed):
    """Rows, labels, positions, stopping and reading back all have to be right for this."""
    known = 2
    corpus = Corpus(known + 8, seed, longest=500, device=CPU)
    corpus.usable = known
    model = _small_model()
    settings = Optimisation(matrix_rate=1e-3, vector_rate=5e-3, warmup_steps=10)
    trainer = Trainer(model, settings)
    learnt_for = 0  # steps in a row with hardly a loss left
    while learnt_for < 5:
        assert trainer.steps < 3000, losses
        batches = {"single": corpus.single(known, 250), "packed": corpus.packed(1, 500)}
        losses = trainer.step(batches, progress=0.5)
        learnt_for = learnt_for + 1 if max(losses.values()) < 0.01 else 0
    problems = generate(known, f"{seed}.0", "train")
    asked = [prompt(problem.question) for problem in problems]
    asked.append(prompt(problems[1].question, problems[:1]))
    expected = [f" {problem.answer}" for problem in (*problems, problems[1])]
    texts = complete(model.eval(), asked, batch=2)
    assert [text.split("\n\n")[0] for text in texts] == expected


def test_a_step_whose_gradient_is_not_finite_changes_nothing(seed, monkeypatch):
    trainer = Trainer(_small_model(), Optimisation())
    rows = Rows(torch.randint(256, (2, 20)), torch.randint(256, (2, 20)))
    trainer.step({"single": rows}, 0.0)
    before = [p.detach().clone() for p in trainer.parameters]
    with monkeypatch.context() as patch:
        loss = trainer.loss
        patch.setattr(trainer, "loss", lambda rows: loss(rows) * math.nan)
        assert math.isnan(trainer.step({"single": rows}, 0.0)["single"])
    assert (trainer.steps, trainer.skipped) == (2, 1)
    for parameter, value in zip(trainer.parameters, before, strict=True):
        assert torch.equal(parameter, value)
    trainer.step({"single": rows}, 0.0)
    assert trainer.skipped == 1
    assert not torch.equal(trainer.parameters[0], before[0])


def test_vectors_learn_faster_and_only_matrices_decay():
    trainer = Trainer(_small_model(), Optimisation(matrix_rate=1e-3, vector_rate=1e-2))
    matrices, vectors = trainer.optimizer.param_groups
    assert all(p.ndim > 1 for p in matrices["params"]) and matrices["weight_decay"] > 0
    assert all(p.ndim == 1 for p in vectors["params"]) and vectors["weight_decay"] == 0
    assert len(matrices["params"]) + len(vectors["params"]) == len(trainer.parameters)
    assert (matrices["full_rate"], vectors["full_rate"]) == (1e-3, 1e-2)


def test_rate_rises_then_falls_to_its_last_value():
    settings = Optimisation(warmup_steps=10, final_rate=0.02)
    assert rate_factor(0.0, 0, settings) == pytest.approx(0.1)
    assert rate_factor(0.0, 9, settings) == pytest.approx(1.0)
    assert rate_factor(0.5, 500, settings) == pytest.approx(0.51)
    assert rate_factor(1.0, 1000, settings) == pytest.approx(0.02)
    assert rate_factor(1.5, 1500, settings) == pytest.approx(0.02)
