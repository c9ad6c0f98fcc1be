"""The program convert_megatron, and its document."""

from pathlib import Path

import asynct_model
import convert_megatron
import pytest
from absl import app, flags
from absl.testing import flagsaver
from asynct_model.megatron.names import pieces
from megatron_by_hand import (
    assert_same,
    load_tensors,
    megatron_config,
    mixed_tensors,
    save_plain,
    shards,
)
from random_checkpoint import random_checkpoint

_DOCUMENT = Path(asynct_model.__file__).parents[1] / "docs" / "megatron.md"


@pytest.fixture(autouse=True)
def keep_flags():
    with flagsaver.flagsaver():
        yield
    flags.FLAGS.unparse_flags()


def _run(*arguments):
    flags.FLAGS.unparse_flags()
    for name in ("ckpt_format", "config", "tensor_parallel", "to"):
        flags.FLAGS[name].unparse()
    convert_megatron.main(flags.FLAGS(["convert_megatron", *arguments]))


def test_there_and_back(tmp_path, seed, capsys):
    source = random_checkpoint(tmp_path / "source", seed, vocab_size=500)
    megatron, back = tmp_path / "megatron", tmp_path / "back"
    _run(
        "--to=megatron", "--ckpt_format=torch", "--tensor_parallel=2",
        f"--input={source}", f"--output={megatron}",
    )  # fmt: skip
    assert "500 (12 rows of padding)" in capsys.readouterr().out
    _run(f"--input={megatron}", f"--output={back}")
    assert_same(load_tensors(back), load_tensors(source))
    out = capsys.readouterr().out
    assert "63 (2.0 MB)" in out and "tied" in out and "to huggingface" in out


def test_configuration_of_a_file(tmp_path, seed, capsys):
    config = megatron_config()
    tensors = mixed_tensors(config, seed)
    source = save_plain(tmp_path / "source", config, shards(config, tensors, 1))
    config.max_position_embeddings = 99
    config.save_pretrained(tmp_path)
    _run(f"--config={tmp_path}/config.json", f"--input={source}", f"--output={tmp_path}/output")
    out = " ".join(capsys.readouterr().out.split())
    assert "Note: max_position_embeddings is 99 as given, not the checkpoint's" in out
    assert "Note: eos_token_id is not known" in out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--tensor_parallel=2"], "--tensor_parallel has no meaning with --to=huggingface"),
        (["--to=megatron", "--config=x"], "--config has no meaning with --to=megatron"),
        (["--config=absent"], "--config=absent: there is no such file"),
        (["left"], "unexpected argument 'left'"),
    ],
)
def test_flags(arguments, said):
    with pytest.raises(app.UsageError, match=said):
        _run("--input=a", "--output=b", *arguments)


def test_what_is_wrong_is_said_without_a_traceback(tmp_path):
    with pytest.raises(SystemExit, match="not converted: .* is no Megatron checkpoint"):
        _run(f"--input={tmp_path}", f"--output={tmp_path}/output")


def test_the_document_has_every_name():
    text = _DOCUMENT.read_text()
    config = megatron_config(num_hidden_layers=1, tie_word_embeddings=False)
    for entry in (entry for piece in pieces(config, 256) for entry in piece):
        for name in entry.names:
            assert f"`{name.removeprefix('decoder.layers.0.')}`" in text, name
        for part in entry.parts:
            assert f"`{part.removeprefix('model.layers.0.')}`" in text, part
