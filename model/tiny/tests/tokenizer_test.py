"""The byte tokenizer: any text, one token a byte, nothing added."""

import random
import sys

import pytest
from asynct_tiny.tokenizer import EOS_ID, PAD_ID, VOCAB_SIZE, build_tokenizer
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
