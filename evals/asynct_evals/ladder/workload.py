"""gsm8k as lengths: what a random model is asked, which puts out all the tokens it may."""

from __future__ import annotations

from scenarios import Scenario

from asynct_evals import task
from asynct_evals.data import Data

_VOCABULARY = 32768


def gsm8k(data: Data, *, num_fewshot: int, seed: int) -> Scenario:
    """The lengths of lm-eval's prompts; every answer is as long as it may be.

    Their tokens are those of a byte-pair encoding that is trained on the examples, every digit by
    itself: no tokenizer comes with random weights.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    asked = task.build("gsm8k", data)
    task.set_shots(asked, num_fewshot, seed)
    texts = [asked.fewshot_context(doc, num_fewshot) for doc in asked.eval_docs]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel()])
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        (f"{problem.question}\n{problem.answer}" for problem in data.fewshot), trainer)
    return Scenario(f"gsm8k, {num_fewshot} shots", tuple(
        (len(encoded.ids), task.MAX_GEN_TOKS) for encoded in tokenizer.encode_batch(texts)))
