"""Random checkpoints: how many gates are closed, and what the attention decides."""

import json

import pytest
import torch
from asynct_evals.throughput import weights
from asynct_evals.throughput.reference import Answer, Reference, Verdict
from asynct_model import AsyncTConfig
from asynct_model.checkpoint import check_directory
from safetensors.torch import load_file
from throughput_runs import SHAPE, WrongReference
from transformers import AutoModelForCausalLM

CONFIG = AsyncTConfig(**SHAPE)


def save(folder, seed, *, zeros=0.7, dtype=torch.bfloat16, **fields):
    config = AsyncTConfig(**{**SHAPE, **fields})
    weights.save_asynct(config, folder, zeros=zeros, dtype=dtype, seed=seed)
    return folder


@pytest.mark.parametrize("zeros", [0.6, 0.7, 0.85])
def test_as_many_gates_are_closed_as_were_asked_for(zeros, tmp_path, seed):
    folder = save(tmp_path / "model", seed, zeros=zeros)
    measured = weights.attention_zeros(folder, seed + 1)
    print(f"{measured:.3f} of {zeros}")
    assert measured == pytest.approx(zeros, abs=0.06)


def test_the_checkpoint_is_whole_and_its_vectors_are_float32(tmp_path, seed):
    folder = save(tmp_path / "model", seed)
    check_directory(folder, CONFIG)
    for name, tensor in load_file(folder / "model.safetensors").items():
        assert tensor.dtype == (torch.float32 if tensor.dim() == 1 else torch.bfloat16), name
    assert json.loads((folder / "config.json").read_text())["architectures"] == [
        "AsyncTForCausalLM"]
    untied = save(tmp_path / "untied", seed, tie_word_embeddings=False)
    check_directory(untied, AsyncTConfig(**SHAPE, tie_word_embeddings=False))


def test_weights_are_the_seeds(tmp_path, seed):
    first, same, other = (load_file(save(tmp_path / name, s) / "model.safetensors")
                          for name, s in (("a", seed), ("b", seed), ("c", seed + 1)))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


def test_the_rival_has_the_same_sizes(tmp_path, seed):
    weights.save_rival(CONFIG, tmp_path / "rival", dtype=torch.float16, seed=seed)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "rival")
    assert type(model).__name__ == "Qwen3ForCausalLM" and model.dtype == torch.float16
    assert model.config.num_hidden_layers == 2 and model.config.vocab_size == 300
    attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
    assert tuple(attention.q_proj.weight.shape) == (128, 64)
    assert tuple(attention.k_proj.weight.shape) == (64, 64)
    assert tuple(mlp.gate_proj.weight.shape) == (96, 64)


@torch.no_grad()
def generated(folder, seed, dtype=torch.bfloat16, change=None) -> list[Answer]:
    """Answers of the Hugging Face model, read in one forward pass."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    if change is not None:
        change(model)
    generator = torch.Generator().manual_seed(seed)
    answers = []
    for length in (1, 40, 130):
        prompt = torch.randint(CONFIG.vocab_size, (1, length), generator=generator)
        tokens = model.generate(prompt, max_new_tokens=6, min_new_tokens=6, do_sample=False)
        rows = model(tokens).logits[0, length - 1:-1].float().log_softmax(-1)
        steps = [{token: row[token].item() for token in (chosen, *row.topk(20).indices.tolist())}
                 for chosen, row in zip(tokens[0, length:].tolist(), rows)]
        answers.append(Answer(prompt[0].tolist(), steps))
    return answers


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_right_answers_pass(dtype, tmp_path, seed):
    folder = save(tmp_path / "model", seed, dtype=dtype)
    verdict = Reference(folder, dtype, None).judge(generated(folder, seed, dtype))
    print(verdict)
    assert verdict.fault is None
    assert 0 < verdict.error < 1.1 * verdict.eager


def test_long_prompts_are_read_in_parts(tmp_path, seed, monkeypatch):
    folder = save(tmp_path / "model", seed)
    answers = generated(folder, seed)
    reference = Reference(folder, torch.bfloat16, None)
    whole = reference._expected(reference._exact, answers)
    monkeypatch.setattr("asynct_evals.throughput.reference._CHUNK", 17)
    torch.testing.assert_close(reference._expected(reference._exact, answers), whole,
                               rtol=0, atol=1e-4)


def no_moving_average(model):
    for layer in model.model.layers:
        layer.self_attn.sigma.data.zero_()


def another_gate(model):
    model.model.layers[0].self_attn.alpha.data *= 1.5


@pytest.mark.parametrize("change", [no_moving_average, another_gate])
def test_wrong_answers_are_told(change, tmp_path, seed):
    folder = save(tmp_path / "model", seed)
    answers = generated(folder, seed, change=change)
    verdict = Reference(folder, torch.bfloat16, None).judge(answers)
    print(verdict)
    assert "off by" in verdict.fault


def test_one_head_of_another_sigma_shows(tmp_path, seed):
    folder = save(tmp_path / "model", seed)
    assert "off by" in WrongReference(folder, torch.bfloat16, None).judge(
        generated(folder, seed)).fault


def test_fp8_weights_may_be_further_off(tmp_path, seed):
    folder = save(tmp_path / "model", seed)
    answers = generated(folder, seed)
    plain = Reference(folder, torch.bfloat16, None).judge(answers)
    rounded = Reference(folder, torch.bfloat16, "fp8").judge(answers)
    print(plain, rounded)
    assert rounded.eager > 3 * plain.eager
    assert rounded.error == plain.error


@pytest.mark.parametrize("verdict, words", [
    (Verdict(0.1, 0.1, 9.0), None), (Verdict(0.19, 0.1, 1.0), None),
    (Verdict(0.21, 0.1, 9.0), "off by 0.21"), (Verdict(float("nan"), 0.1, 9.0), "off by nan"),
    (Verdict(0.1, float("nan"), 9.0), "off by"), (Verdict(0.1, 0.1, 0.9), "blind"),
    (Verdict(0.1, 0.1, float("nan")), "blind")])
def test_faults(verdict, words):
    assert verdict.fault is None if words is None else words in verdict.fault
