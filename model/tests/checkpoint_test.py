"""A checkpoint that is not exactly the model's is refused, by name."""

import json

import pytest
import torch
from asynct_model import AsyncTForCausalLM, checkpoint
from random_checkpoint import random_checkpoint, random_config, random_tensors, save_checkpoint
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "scalars", [(), ("norm.alpha", "norm.gamma", "self_attn.q_norm.alpha", "input_layernorm.gamma")]
)
def test_expected_tensors_are_the_models(tied, scalars):
    config = random_config(tie_word_embeddings=tied, scalar_dyht=scalars)
    with torch.device("meta"):
        state = AsyncTForCausalLM(config).state_dict()
    if tied:
        del state["lm_head.weight"]
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    assert checkpoint.expected_tensors(config) == shapes


def test_expected_tensors_have_the_specified_names():
    config = random_config(num_hidden_layers=1)
    layer = {
        "input_layernorm.alpha", "input_layernorm.gamma",
        "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
        "self_attn.o_proj.weight", "self_attn.q_norm.alpha", "self_attn.q_norm.gamma",
        "self_attn.k_norm.alpha", "self_attn.k_norm.gamma",
        "self_attn.sigma", "self_attn.alpha", "self_attn.gamma",
        "post_attn_layernorm.alpha", "post_attn_layernorm.gamma",
        "pre_mlp_layernorm.alpha", "pre_mlp_layernorm.gamma",
        "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
    }  # fmt: skip
    specified = {f"model.layers.0.{name}" for name in layer}
    specified |= {"model.embed_tokens.weight", "model.norm.alpha", "model.norm.gamma"}
    assert set(checkpoint.expected_tensors(config)) == specified


def test_check_accepts_what_is_expected_and_names_all_faults_at_once():
    config = random_config()
    shapes = checkpoint.expected_tensors(config)
    checkpoint.check(shapes, config)
    shapes["model.layers.1.self_attn.sigma"] = (1,)
    shapes["model.layers.3.self_attn.sigma"] = (4,)
    del shapes["model.norm.gamma"]
    with pytest.raises(ValueError) as caught:
        checkpoint.check(shapes, config)
    message = str(caught.value)
    assert "missing: model.norm.gamma" in message
    assert "not part of the model: model.layers.3.self_attn.sigma" in message
    assert "model.layers.1.self_attn.sigma is [1], must be [4]" in message


def test_check_shortens_long_lists():
    config = random_config()
    with pytest.raises(ValueError, match="missing: .* and [0-9]+ more$"):
        checkpoint.check({}, config)


def _spoil(name, tensors):
    if name == "missing":
        del tensors["model.layers.1.mlp.up_proj.weight"]
        return "missing: model.layers.1.mlp.up_proj.weight"
    if name == "extra":
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(128)
        return "not part of the model: model.layers.0.self_attn.q_proj.bias"
    if name == "head of a tied model":
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        return "not part of the model: lm_head.weight"
    if name == "misshapen":
        tensors["model.norm.alpha"] = torch.ones(1)
        return r"model.norm.alpha is \[1\], must be \[128\]"
    tensors["model.layers.2.self_attn.k_proj.weight"] = torch.zeros(128, 64)
    return r"model.layers.2.self_attn.k_proj.weight is \[128, 64\], must be \[64, 128\]"


@pytest.mark.parametrize(
    "fault", ["missing", "extra", "head of a tied model", "misshapen", "transposed"]
)
@pytest.mark.parametrize("loader", [AsyncTForCausalLM, AutoModelForCausalLM])
def test_from_pretrained_refuses(fault, loader, tmp_path, seed):
    config = random_config()
    tensors = random_tensors(config, seed)
    message = _spoil(fault, tensors)
    directory = save_checkpoint(tmp_path / "spoilt", config, tensors)
    with pytest.raises(ValueError, match=message) as caught:
        loader.from_pretrained(directory)
    assert str(directory) in str(caught.value)


@pytest.mark.parametrize("kept", [0, 4, 100, 0.5, -1])
def test_from_pretrained_refuses_a_file_cut_short(kept, tmp_path, seed):
    directory = random_checkpoint(tmp_path / "cut", seed)
    file = directory / checkpoint.WEIGHTS_FILE
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(ValueError, match=f"{file} is cut short or damaged"):
        AsyncTForCausalLM.from_pretrained(directory)


def test_from_pretrained_refuses_a_directory_without_weights(tmp_path):
    random_config().save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=checkpoint.WEIGHTS_FILE):
        AsyncTForCausalLM.from_pretrained(tmp_path)


@pytest.fixture
def sharded(tmp_path, seed):
    """A checkpoint in several files, and the names of the files."""
    directory = random_checkpoint(tmp_path / "whole", seed)
    model = AsyncTForCausalLM.from_pretrained(directory)
    model.save_pretrained(tmp_path / "sharded", max_shard_size="300KB")
    index = json.loads((tmp_path / "sharded" / checkpoint.INDEX_FILE).read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2
    return tmp_path / "sharded", files


def test_sharded_checkpoint_loads(sharded):
    directory, _ = sharded
    model = AsyncTForCausalLM.from_pretrained(directory)
    whole = AsyncTForCausalLM.from_pretrained(directory.parent / "whole")
    for name, tensor in whole.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_missing_shard_is_named(sharded):
    directory, files = sharded
    (directory / files[1]).unlink()
    with pytest.raises(FileNotFoundError, match=files[1]):
        AsyncTForCausalLM.from_pretrained(directory)


def test_tensor_in_two_shards_is_named(sharded):
    directory, files = sharded
    shapes = checkpoint.expected_tensors(random_config())
    name = "model.norm.alpha"
    for file in files[:2]:
        save_file({name: torch.ones(shapes[name])}, directory / file)
    with pytest.raises(ValueError, match=f"{files[1]} holds {name}"):
        checkpoint.read_shapes(directory)
