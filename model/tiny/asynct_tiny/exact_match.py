"""Held-out exact match by greedy generation, zero-shot or after worked examples."""

import re
from collections.abc import Sequence

import torch
from asynct_model import AsyncTForCausalLM
from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

from asynct_tiny.problems import STOP, Problem, generate, prompt
from asynct_tiny.tokenizer import EOS_ID, PAD_ID, build_tokenizer

_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
_NEW_TOKENS = 96  # the longest answer and STOP


class _StopAt(StoppingCriteria):
    """Ends a row when its last tokens are the given ones."""

    def __init__(self, tokens: Sequence[int], device: torch.device):
        self.tokens = torch.tensor(tokens, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs) -> torch.Tensor:
        return (input_ids[:, -len(self.tokens) :] == self.tokens).all(dim=-1)


def final_answer(text: str) -> str | None:
    """The number after the first "####", as lm-eval's strict match takes it."""
    found = _ANSWER.search(text)
    return found and found[1]


@torch.inference_mode()
def complete(model: AsyncTForCausalLM, prompts: Sequence[str], batch: int) -> list[str]:
    """Greedy continuations of `prompts`, `batch` at a time, up to STOP or <eos>."""
    tokenizer = build_tokenizer()
    stop = StoppingCriteriaList([_StopAt(list(STOP.encode()), model.device)])
    settings = GenerationConfig(
        max_new_tokens=_NEW_TOKENS, do_sample=False, pad_token_id=PAD_ID, eos_token_id=EOS_ID
    )
    texts: list[str] = []
    for first in range(0, len(prompts), batch):
        inputs = tokenizer(prompts[first : first + batch], padding=True, return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        output = model.generate(
            input_ids=inputs["input_ids"].to(model.device),
            attention_mask=inputs["attention_mask"].to(model.device),
            generation_config=settings,
            stopping_criteria=stop,
        )
        texts += tokenizer.batch_decode(output[:, length:], skip_special_tokens=True)
    return texts


def exact_match(
    model: AsyncTForCausalLM, count: int, shots: int, *, seed: int, batch: int
) -> float:
    """Share of `count` held-out problems answered exactly after `shots` training problems each."""
    asked = generate(count, seed, "test")
    examples = generate(count * shots, seed, "train")
    prompts = [
        prompt(problem.question, examples[index * shots : (index + 1) * shots])
        for index, problem in enumerate(asked)
    ]
    return score(asked, complete(model, prompts, batch))


def score(asked: Sequence[Problem], texts: Sequence[str]) -> float:
    """Share of `texts` whose final answer is the problem's."""
    right = [
        final_answer(text) == final_answer(problem.answer)
        for problem, text in zip(asked, texts, strict=True)
    ]
    return sum(right) / len(right)
