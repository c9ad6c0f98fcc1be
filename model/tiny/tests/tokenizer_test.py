"""The byte tokenizer: any text, one token a byte, nothing added."""

import random
import sys

import pytest
from asynct_tiny.problems import generate, prompt
from asynct_tiny.tokenizer import EOS_ID, PAD_ID, VOCAB_SIZE, build_tokenizer
from jinja2 import TemplateError
from transformers import AutoTokenizer


@pytest.fixture(params=["built", "saved"])
def tokenizer(request, tmp_path):
    built = build_tokenizer()
    if request.param == "built":
        return built
    built.save_pretrained(tmp_path)
    return AutoTokenizer.from_pretrained(tmp_path)


def test_every_character_is_its_utf8_bytes_and_comes_back(tokenizer, seed):
    rng = random.Random(seed)
    surrogates = range(0xD800, 0xE000)
    characters = [
        chr(code) for code in rng.sample(range(sys.maxunicode + 1), 3000) if code not in surrogates
    ]
    text = "".join(map(chr, range(0x100))) + "".join(characters)
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\n",
        " a  b ",
        "Question: 1 + 1?\nAnswer:",
        "a , b . c ' s",
        "<eos>",
        "<pad> <unk>",
    ],
)
def test_spaces_punctuation_and_names_of_special_tokens_are_text(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_single_bytes_decode_to_the_replacement_character(tokenizer):
    assert tokenizer.decode([0xE2, 0x82]) == "\N{REPLACEMENT CHARACTER}"
    assert tokenizer.decode([0xE2, 0x82, 0xAC]) == "€"


def test_special_tokens(tokenizer):
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (PAD_ID, EOS_ID)
    assert tokenizer.bos_token_id is None
    assert len(tokenizer) <= VOCAB_SIZE
    assert tokenizer.model_max_length == 2048
    assert tokenizer.decode([65, EOS_ID, PAD_ID], skip_special_tokens=True) == "A"


def test_a_batch_is_padded_on_the_left(tokenizer):
    batch = tokenizer(["ab", "a"], padding=True)
    assert batch["input_ids"] == [[97, 98], [PAD_ID, 97]]
    assert batch["attention_mask"] == [[1, 1], [0, 1]]


def test_a_chat_is_what_a_few_shot_prompt_is(tokenizer, seed):
    *shots, asked = generate(3, seed)
    messages = []
    for problem in shots:
        messages.append({"role": "user", "content": problem.question})
        messages.append({"role": "assistant", "content": problem.answer})
    messages.append({"role": "user", "content": asked.question})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == prompt(asked.question, shots) + " "
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert encoded["input_ids"] == list(text.encode())


@pytest.mark.parametrize(
    ("roles", "named"),
    [
        (["system", "user"], "message 1 is of role system"),
        (["assistant"], "message 1 is of role assistant"),
        (["user", "user"], "message 2 is of role user"),
        (["user", "assistant", "tool"], "message 3 is of role tool"),
    ],
)
def test_a_chat_of_other_roles_is_refused(tokenizer, roles, named):
    with pytest.raises(TemplateError, match=f"alternate.*{named}"):
        tokenizer.apply_chat_template([{"role": role, "content": "1?"} for role in roles])
