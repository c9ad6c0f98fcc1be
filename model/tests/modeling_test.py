"""The Hugging Face model against the specification, and its cache, padding, gradients and files."""

import pytest
import torch
from asynct_model import AsyncTConfig, AsyncTForCausalLM
from naive_model import naive_logits
from random_checkpoint import random_checkpoint, random_config, random_tensors
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, DynamicCache

# Rotary angles are float32, in float64 models too; everything else is exact to rounding.
TOLERANCE = 1e-5
LENGTHS = (1, 2, 5, 17)


def _model(config: AsyncTConfig, seed: int, dtype=torch.float64) -> AsyncTForCausalLM:
    model = AsyncTForCausalLM(config)
    tensors = random_tensors(config, seed)
    if config.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors)
    return model.to(dtype).eval()


def _tokens(config: AsyncTConfig, *shape: int) -> torch.Tensor:
    return torch.randint(config.vocab_size, shape)


@pytest.fixture
def model(seed):
    return _model(random_config(), seed)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        dict(attention_window=1),
        dict(attention_window=5, attention_weights=(0.4, 0.3, 0.2, 0.1, -0.5)),
        dict(attention_relu_pre=False, attention_clip=(-0.5, 0.75)),
        dict(attention_clip=(0.25, 2.0), attention_scale=0.1),
        dict(tie_word_embeddings=False, dyht_clip=(-0.5, 2.0), num_key_value_heads=4),
        dict(
            num_key_value_heads=1,
            scalar_dyht=("norm.alpha", "input_layernorm.gamma", "self_attn.q_norm.alpha"),
        ),
    ],
    ids=str,
)
def test_logits_are_the_specifications(fields, seed):
    config = random_config(**fields)
    tokens = _tokens(config, 12)
    expected = naive_logits(config, random_tensors(config, seed), tokens.tolist())
    logits = _model(config, seed)(tokens[None]).logits[0]
    assert expected.std() > 0.1
    torch.testing.assert_close(logits, expected, atol=TOLERANCE, rtol=TOLERANCE)


def test_attention_decides_the_logits(model):
    """Otherwise the comparisons in this file would prove nothing."""
    tokens = _tokens(model.config, 1, 40)
    logits = model(tokens).logits
    for name in ("sigma", "alpha", "gamma"):
        for layer in model.model.layers:
            getattr(layer.self_attn, name).data *= 1.1
        changed = model(tokens).logits
        assert (changed - logits).abs().max() > 1e3 * TOLERANCE, name


@pytest.mark.parametrize("chunks", [(40,), (1,) * 40, (13, 1, 1, 25), (2, 38)])
def test_cache_changes_nothing(model, chunks):
    tokens = _tokens(model.config, 2, 40)
    expected = model(tokens, use_cache=False).logits
    cache, parts = None, []
    for chunk in tokens.split(chunks, dim=1):
        outputs = model(chunk, past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        parts.append(outputs.logits)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-10, rtol=1e-10)
    assert cache.get_seq_length() == 40


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batch_equals_each_sequence_alone(model, side):
    width = max(LENGTHS) + 3
    tokens = _tokens(model.config, len(LENGTHS), width)  # whatever stands in the padding
    mask = torch.zeros(len(LENGTHS), width, dtype=torch.long)
    for row, length in enumerate(LENGTHS):
        mask[row, width - length :] = 1 if side == "left" else 0
        mask[row, :length] |= 0 if side == "left" else 1
    batched = model(tokens, attention_mask=mask).logits
    for row in range(len(LENGTHS)):
        kept = mask[row].bool()
        alone = model(tokens[row, kept][None]).logits[0]
        torch.testing.assert_close(batched[row, kept], alone, atol=TOLERANCE, rtol=TOLERANCE)


def test_positions_count_only_what_the_mask_keeps(seed):
    """With a window of one key, tokens masked out in the middle might as well not be there."""
    model = _model(random_config(attention_window=1), seed)
    tokens, mask = _tokens(model.config, 1, 20), torch.ones(1, 20, dtype=torch.long)
    mask[0, 5:9] = 0
    kept = mask[0].bool()
    masked = model(tokens, attention_mask=mask).logits[0, kept]
    alone = model(tokens[:, kept]).logits[0]
    torch.testing.assert_close(masked, alone, atol=TOLERANCE, rtol=TOLERANCE)


def test_left_padded_chunks_equal_each_sequence_alone(model):
    tokens, mask = _tokens(model.config, 3, 30), torch.ones(3, 30, dtype=torch.long)
    mask[1, :7] = 0
    mask[2, :14] = 0  # past the first chunk
    cache = DynamicCache(config=model.config)
    parts = [
        model(tokens[:, a:b], attention_mask=mask[:, :b], past_key_values=cache).logits
        for a, b in ((0, 10), (10, 11), (11, 30))
    ]
    batched = torch.cat(parts, dim=1)
    for row in range(3):
        kept = mask[row].bool()
        alone = model(tokens[row, kept][None]).logits[0]
        torch.testing.assert_close(batched[row, kept], alone, atol=TOLERANCE, rtol=TOLERANCE)


def test_positions_can_be_given(model):
    """RoPE is relative: positions moved together change nothing, moved apart they do."""
    tokens = _tokens(model.config, 1, 20)
    expected = model(tokens).logits
    moved = model(tokens, position_ids=torch.arange(100, 120)[None]).logits
    torch.testing.assert_close(moved, expected, atol=1e-3, rtol=1e-3)
    apart = model(tokens, position_ids=torch.arange(0, 40, 2)[None]).logits
    assert (apart - expected).abs().max() > 0.1


def test_embeddings_can_be_given(model):
    tokens = _tokens(model.config, 1, 9)
    embeddings = model.get_input_embeddings()(tokens)
    assert torch.equal(model(inputs_embeds=embeddings).logits, model(tokens).logits)
    with pytest.raises(ValueError, match="exactly one of"):
        model(tokens, inputs_embeds=embeddings)
    with pytest.raises(ValueError, match="exactly one of"):
        model()


@pytest.mark.parametrize("shape", [(2, 9), (1, 10), (2, 10, 10)])
def test_attention_mask_of_another_shape_is_refused(model, shape):
    with pytest.raises(ValueError, match=r"attention_mask.*\[2, 0 cached \+ 10\]"):
        model(_tokens(model.config, 2, 10), attention_mask=torch.ones(shape))


def test_loss_is_of_the_next_token(model):
    tokens = _tokens(model.config, 2, 15)
    labels = tokens.clone()
    labels[:, :6] = -100
    outputs = model(tokens, labels=labels)
    expected = F.cross_entropy(outputs.logits[:, 5:-1].flatten(0, 1), tokens[:, 6:].flatten())
    torch.testing.assert_close(outputs.loss, expected, check_dtype=False, atol=1e-5, rtol=1e-5)


def test_some_logits_and_all_hidden_states_can_be_asked_for(model):
    tokens = _tokens(model.config, 2, 11)
    full = model(tokens, output_hidden_states=True)
    last = model(tokens, logits_to_keep=2).logits
    torch.testing.assert_close(last, full.logits[:, -2:])
    assert len(full.hidden_states) == model.config.num_hidden_layers + 1
    as_tuple = model(tokens, return_dict=False)
    assert torch.equal(as_tuple[0], full.logits)


def test_gradient_is_the_derivative(model):
    """Along a random direction in the space of all parameters, against a central difference."""
    tokens = _tokens(model.config, 2, 24)
    parameters = dict(model.named_parameters())
    direction = {
        name: torch.randn_like(p) * p.detach().abs().mean() for name, p in parameters.items()
    }

    def loss_at(step: float) -> torch.Tensor:
        moved = {name: p + step * direction[name] for name, p in parameters.items()}
        logits = torch.func.functional_call(model, moved, (tokens,)).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    loss_at(0.0).backward()
    slope = sum((p.grad * direction[name]).sum() for name, p in parameters.items())
    step = 1e-6
    with torch.no_grad():
        difference = (loss_at(step) - loss_at(-step)) / (2 * step)
    torch.testing.assert_close(slope, difference, rtol=1e-3, atol=1e-6)
    for name, parameter in parameters.items():
        assert parameter.grad.abs().max() > 0, name


def test_gradient_checkpointing_changes_nothing(model):
    tokens = _tokens(model.config, 2, 12)
    model.train()
    gradients = []
    for enable in (False, True):
        if enable:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        torch.testing.assert_close(checkpointed, plain)


def test_generate_takes_the_likeliest_token_each_time(model):
    tokens = _tokens(model.config, 1, 6)
    expected = tokens
    for _ in range(10):
        following = model(expected).logits[:, -1].argmax(-1, keepdim=True)
        expected = torch.cat((expected, following), dim=1)
    generated = model.generate(tokens, max_new_tokens=10, do_sample=False)
    assert generated.tolist() == expected.tolist()


def test_generate_on_a_left_padded_batch_equals_each_prompt_alone(model):
    width = max(LENGTHS)
    tokens, mask = _tokens(model.config, len(LENGTHS), width), torch.zeros(len(LENGTHS), width)
    for row, length in enumerate(LENGTHS):
        mask[row, width - length :] = 1
    batched = model.generate(
        tokens, attention_mask=mask.long(), max_new_tokens=8, do_sample=False, pad_token_id=0
    )
    for row, length in enumerate(LENGTHS):
        prompt = tokens[row, width - length :][None]
        alone = model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)
        assert batched[row, width:].tolist() == alone[0, length:].tolist()


@pytest.mark.parametrize("tied", [True, False])
def test_file_round_trip_is_exact(tied, seed, tmp_path):
    config = random_config(tie_word_embeddings=tied)
    model = _model(config, seed, torch.float32)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, AsyncTForCausalLM)
    tokens = _tokens(config, 2, 10)
    assert torch.equal(loaded(tokens).logits, model(tokens).logits)
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) == tied


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float32])
def test_a_bfloat16_model_keeps_its_vectors_in_float32(stored, seed, tmp_path):
    directory = random_checkpoint(tmp_path / "stored", seed)
    AsyncTForCausalLM.from_pretrained(directory).to(stored).save_pretrained(tmp_path / "cast")
    loaded = AsyncTForCausalLM.from_pretrained(tmp_path / "cast", dtype=torch.bfloat16)
    for name, parameter in loaded.named_parameters():
        assert parameter.dtype == (torch.float32 if parameter.ndim == 1 else torch.bfloat16), name
    logits = loaded(_tokens(loaded.config, 1, 10)).logits
    assert logits.dtype == torch.bfloat16 and logits.isfinite().all()


def test_a_new_model_starts_as_documented():
    config = AsyncTConfig.preset("asynct-0.6b", num_hidden_layers=1, vocab_size=64)
    model = AsyncTForCausalLM(config)
    attention = model.model.layers[0].self_attn
    assert attention.alpha.tolist() == [config.head_dim / 2] * config.num_attention_heads
    assert set(attention.sigma.tolist()) == {0.5} and set(attention.gamma.tolist()) == {1.0}
    assert set(model.model.norm.alpha.tolist()) == {2.0}
    assert abs(attention.q_proj.weight.std() / config.initializer_range - 1) < 0.05
