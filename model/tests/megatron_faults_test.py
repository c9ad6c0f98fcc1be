"""What is missing, misplaced, cut short or not AsyncT's is refused, by name."""

import pickle
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from asynct_model.megatron.convert import to_huggingface, to_megatron
from megatron_by_hand import arguments, megatron_config, mixed_tensors, save_plain, shards
from random_checkpoint import random_checkpoint

_LAYER = "decoder.layers.1"
_CUTS = [0, 4, 100, 0.5, -1]


def _cut(file, kept):
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])


def _edit(file, **fields):
    saved = torch.load(file, weights_only=False)
    torch.save({**saved, **fields}, file)


@pytest.fixture
def config():
    return megatron_config()


@pytest.fixture
def by_rank(config, seed):
    return shards(config, mixed_tensors(config, seed), 2)


class TestPlainFiles:
    """Two tensor-parallel ranks, two pipeline stages."""

    @pytest.fixture
    def source(self, config, by_rank, tmp_path):
        for shard in by_rank:
            shard["output_layer.weight"] = shard["embedding.word_embeddings.weight"]
        return save_plain(tmp_path / "source", config, by_rank, stages=2) / "iter_0000300"

    def _refused(self, source, match, error=ValueError):
        with pytest.raises(error, match=match):
            to_huggingface(source, source.parent / "output")

    @pytest.mark.parametrize("name", ["00_000", "00_001", "01_000", "01_001"])
    def test_missing(self, source, name):
        (source / f"mp_rank_{name}" / "model_optim_rng.pt").unlink()
        self._refused(source, f"mp_rank_{name}/model_optim_rng.pt is missing", FileNotFoundError)

    def test_missing_folders_at_the_end(self, source):
        shutil.rmtree(source / "mp_rank_01_001")
        shutil.rmtree(source / "mp_rank_01_000")
        self._refused(source, "mp_rank_01_000/model_opt.* is missing", FileNotFoundError)

    @pytest.mark.parametrize(
        "one, other", [("00_000", "01_000"), ("00_001", "01_001"), ("00_000", "00_001")]
    )
    def test_misordered(self, source, one, other):
        first, second = source / f"mp_rank_{one}", source / f"mp_rank_{other}"
        first.rename(source / "moved")
        second.rename(first)
        (source / "moved").rename(second)
        self._refused(source, f"mp_rank_{one}/.* was saved by tensor-parallel rank")

    @pytest.mark.parametrize("kept", _CUTS)
    def test_cut_short(self, source, kept):
        file = source / "mp_rank_01_000" / "model_optim_rng.pt"
        _cut(file, kept)
        self._refused(source, f"{file} is cut short or damaged")

    def test_of_another_iteration(self, source):
        _edit(source / "mp_rank_01_000" / "model_optim_rng.pt", iteration=200)
        self._refused(source, "mp_rank_01_000/.* is of iteration 200, the first .* 300")

    def test_tied_output_that_is_not_the_embedding(self, source):
        file = source / "mp_rank_01_001" / "model_optim_rng.pt"
        model = torch.load(file, weights_only=False)["model"]
        model["output_layer.weight"] = model["output_layer.weight"] + 1
        _edit(file, model=model)
        self._refused(source, "output_layer.weight is not embedding.word_embeddings.weight")

    def test_expert_parallel(self, source):
        (source / "mp_rank_00_000_001").mkdir()
        self._refused(source, "mp_rank_00_000_001 is not as")

    def test_virtual_pipeline(self, source):
        _edit(source / "mp_rank_00_000" / "model_optim_rng.pt", model0={})
        self._refused(source, "mp_rank_00_000/.* is of a virtual pipeline")

    def test_layer_in_two_stages(self, source):
        file = source / "mp_rank_00_001" / "model_optim_rng.pt"
        model = torch.load(file, weights_only=False)["model"]
        model["embedding.word_embeddings.weight"] = torch.ones(1)
        _edit(file, model=model)
        self._refused(source, "mp_rank_00_001/.* holds embedding.word_embeddings.weight")


def _spoil(fault, shard):
    """Spoils a rank's tensors; what must be said of it."""
    if fault == "missing":
        del shard[f"{_LAYER}.mlp.linear_fc2.weight"]
        return f"missing: {_LAYER}.mlp.linear_fc2.weight"
    if fault == "extra":
        shard[f"{_LAYER}.self_attention.linear_qkv.bias"] = torch.zeros(4)
        return f"not part of the model: {_LAYER}.self_attention.linear_qkv.bias"
    if fault == "another layer":
        shard["decoder.layers.3.input_layernorm.alpha"] = torch.zeros(64)
        return "not part of the model: decoder.layers.3.input_layernorm.alpha"
    if fault == "misshapen":
        name = f"{_LAYER}.self_attention.linear_qkv.weight"
        shard[name] = shard[name].T.contiguous()
        return rf"{name} is \[64, \d+\], must be \[\d+, 64\]"
    if fault == "scalar":
        name = f"{_LAYER}.self_attention.core_attention.sigma"
        shard[name] = torch.tensor(0.5)
        return rf"{name} is \[\], must be \[\d\]"
    shard[f"{_LAYER}.input_layernorm.weight"] = torch.ones(64)
    return f"{_LAYER}.input_layernorm.gamma and {_LAYER}.input_layernorm.weight are names of"


_FAULTS = ["missing", "extra", "another layer", "misshapen", "scalar", "two names"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fault", _FAULTS)
def test_plain_tensors(fault, rank, config, by_rank, tmp_path):
    said = _spoil(fault, by_rank[rank])
    source = save_plain(tmp_path / "source", config, by_rank)
    with pytest.raises(ValueError, match=said) as caught:
        to_huggingface(source, tmp_path / "output")
    if fault != "two names":
        assert f"tensor-parallel rank {rank} of 2" in str(caught.value)
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("fault", _FAULTS)
def test_distributed_tensors(fault, config, seed, tmp_path):
    (state,) = shards(config, mixed_tensors(config, seed), 1)
    said = _spoil(fault, state)
    source = _save_dist(tmp_path / "source", config, state)
    with pytest.raises(ValueError, match=said):
        to_huggingface(source, tmp_path / "output")
    assert not (tmp_path / "output").exists()


def test_ranks_that_should_hold_the_same(config, by_rank, tmp_path):
    by_rank[1]["decoder.final_layernorm.gamma"] = by_rank[1]["decoder.final_layernorm.gamma"] + 1
    source = save_plain(tmp_path / "source", config, by_rank)
    with pytest.raises(ValueError, match="decoder.final_layernorm.gamma: .* 0 and 1 must hold"):
        to_huggingface(source, tmp_path / "output")
    assert not (tmp_path / "output" / "config.json").exists()


def test_ranks_of_different_types(config, by_rank, tmp_path):
    name = f"{_LAYER}.mlp.linear_fc1.weight"
    by_rank[1][name] = by_rank[1][name].float()
    source = save_plain(tmp_path / "source", config, by_rank)
    with pytest.raises(ValueError, match=f"{name} of rank 1 is torch.float32, .* torch.bfloat16"):
        to_huggingface(source, tmp_path / "output")


def test_a_type_that_no_model_is_trained_in(config, by_rank, tmp_path):
    for shard in by_rank:
        shard["decoder.final_layernorm.gamma"] = torch.ones(64, dtype=torch.int32)
    source = save_plain(tmp_path / "source", config, by_rank)
    with pytest.raises(ValueError, match="model.norm.gamma is torch.int32"):
        to_huggingface(source, tmp_path / "output")


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("vocab_size", None, "lack vocab_size"),
        ("rotary_percent", 0.5, "rotary_percent is 0.5; AsyncT has 1.0"),
        ("position_embedding_type", "learned_absolute", "AsyncT has 'rope'"),
        ("num_query_groups", 3, "num_attention_heads is 8"),
    ],
)
def test_arguments(field, value, said, config, by_rank, tmp_path):
    source = save_plain(tmp_path / "source", config, by_rank)
    file = source / "iter_0000300" / "mp_rank_00" / "model_optim_rng.pt"
    args = arguments(config, ranks=2)
    setattr(args, field, value)
    _edit(file, args=args)
    with pytest.raises(ValueError, match=said):
        to_huggingface(source, tmp_path / "output")


def _save_dist(directory, config, state):
    dcp.save(state, checkpoint_id=directory, no_dist=True)
    torch.save(dict(args=arguments(config)), directory / "common.pt")
    return directory


class TestDistributedFiles:
    """As `to_megatron` writes them: a file for each layer."""

    @pytest.fixture
    def source(self, tmp_path, seed):
        checkpoint = random_checkpoint(tmp_path / "checkpoint", seed)
        to_megatron(checkpoint, tmp_path / "megatron", "torch_dist", ranks=2)
        return tmp_path / "megatron" / "release"

    def _refused(self, source, match, error=ValueError):
        with pytest.raises(error, match=match):
            to_huggingface(source, source.parent / "output")

    @pytest.mark.parametrize("name", ["__0_0.distcp", "__2_0.distcp", "__4_0.distcp"])
    def test_missing(self, source, name):
        (source / name).unlink()
        self._refused(source, f"{name} is missing", FileNotFoundError)

    @pytest.mark.parametrize("name", ["__0_0.distcp", "__2_0.distcp"])
    @pytest.mark.parametrize("kept", _CUTS)
    def test_cut_short(self, source, name, kept):
        _cut(source / name, kept)
        self._refused(source, f"{name} is cut short")

    @pytest.mark.parametrize("name", [".metadata", "common.pt"])
    @pytest.mark.parametrize("kept", _CUTS)
    def test_contents_cut_short(self, source, name, kept):
        _cut(source / name, kept)
        self._refused(source, f"{name} is cut short or damaged")

    def test_misordered(self, source):
        first, second = source / "__0_0.distcp", source / "__1_0.distcp"
        first.rename(source / "moved")
        second.rename(first)
        (source / "moved").rename(second)
        self._refused(source, "__._0.distcp (is cut short|.* damaged or misplaced)")

    def test_damaged(self, source):
        file = source / "__2_0.distcp"
        file.write_bytes(bytes(file.stat().st_size))
        self._refused(source, "cannot be read from __2_0.distcp")

    def test_chunks_of_a_rank_that_are_not_told_of(self, source):
        metadata = dcp.FileSystemReader(source).read_metadata()
        key = "decoder.layers.mlp.linear_fc1.weight"
        metadata.state_dict_metadata[key].chunks.pop()
        _write_metadata(source, metadata)
        self._refused(source, f"the chunks of {key} hold")

    def test_chunk_whose_place_is_not_told(self, source):
        metadata = dcp.FileSystemReader(source).read_metadata()
        key = "decoder.layers.mlp.linear_fc1.weight"
        index = next(index for index in metadata.storage_data if index.fqn == key)
        del metadata.storage_data[index]
        _write_metadata(source, metadata)
        self._refused(source, f"does not say where {key} is from")

    def test_halves_of_different_shapes(self, tmp_path, config, seed):
        (state,) = shards(config, mixed_tensors(config, seed), 1)
        name = f"{_LAYER}.mlp.linear_fc1.weight"
        state[f"{name}_w"], state[f"{name}_v"] = state.pop(name).split([40, 56])
        source = _save_dist(tmp_path / "halves", config, state)
        self._refused(source, f"the halves of {name} are")


def _write_metadata(directory, metadata):
    (directory / ".metadata").write_bytes(pickle.dumps(metadata))


def test_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="is no Megatron checkpoint"):
        to_huggingface(tmp_path, tmp_path / "output")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("12")
    with pytest.raises(FileNotFoundError, match="iter_0000012 is no Megatron checkpoint"):
        to_huggingface(tmp_path, tmp_path / "output")


class TestToMegatron:
    """What is refused on the way to Megatron."""

    @pytest.fixture
    def source(self, tmp_path, seed):
        return random_checkpoint(tmp_path / "source", seed)

    @pytest.mark.parametrize("ranks, said", [(4, "num_key_value_heads, 2"), (0, "at least 1")])
    def test_ranks(self, source, ranks, said, tmp_path):
        with pytest.raises(ValueError, match=f"ranks is {ranks}; it must .*{said}"):
            to_megatron(source, tmp_path / "output", ranks=ranks)

    def test_format(self, source, tmp_path):
        with pytest.raises(ValueError, match="checkpoint_format is 'zarr'"):
            to_megatron(source, tmp_path / "output", "zarr")

    def test_cut_short(self, source, tmp_path):
        _cut(source / "model.safetensors", 0.5)
        with pytest.raises(ValueError, match="model.safetensors is cut short"):
            to_megatron(source, tmp_path / "output")

    def test_missing(self, source, tmp_path):
        (source / "config.json").unlink()
        with pytest.raises(FileNotFoundError, match="config.json is missing"):
            to_megatron(source, tmp_path / "output")

    def test_output_that_is_not_empty(self, source, tmp_path):
        with pytest.raises(ValueError, match=f"{source} is not empty"):
            to_megatron(source, source)
