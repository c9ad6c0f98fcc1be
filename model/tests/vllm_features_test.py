"""What vLLM's users switch on: each feature against the unpaged model, and for what it is for."""

import json
import re

import pytest
import torch
from asynct_model import AsyncTForCausalLM
from asynct_vllm.builder import AsyncTMetadataBuilder
from device_engine import (
    ON_GPU,
    TINY,
    assert_right,
    device_checkpoint,
    device_engine,
    device_model,
    device_tensors,
)
from random_checkpoint import save_checkpoint
from safetensors.torch import save_file
from vllm import SamplingParams
from vllm.lora.request import LoRARequest
from vllm.sampling_params import StructuredOutputsParams
from vllm_engine import (
    BROKEN,
    STEPS,
    TOP_K,
    expected,
    generate,
    max_difference,
    random_prompts,
    reference_model,
    served,
)

PROMPT_LENGTHS = (1, 3, 16, 33, 150)
SHARED = 320  # tokens of a prefix that two requests have in common


@pytest.fixture
def checkpoint(tmp_path, seed):
    return device_checkpoint(tmp_path / "checkpoint", seed)


def test_samples_of_one_prompt_and_the_prompts_log_probabilities(checkpoint):
    samples = 4
    params = SamplingParams(
        n=samples, temperature=1.0, max_tokens=STEPS, ignore_eos=True, detokenize=False,
        logprobs=TOP_K, prompt_logprobs=1,
    )
    with device_engine(checkpoint) as llm:
        outputs = llm.generate(random_prompts(PROMPT_LENGTHS), params, use_tqdm=False)
    assert_right(outputs, checkpoint, f"{samples} samples")
    for output in outputs:
        tokens = {tuple(completion.token_ids) for completion in output.outputs}
        assert len(tokens) == samples
    reference = reference_model(checkpoint)
    for output in outputs:
        prompt = output.prompt_token_ids
        with torch.no_grad():
            exact = reference(torch.tensor([prompt])).logits[0].log_softmax(-1)
        assert output.prompt_logprobs[0] is None
        for position, top in enumerate(output.prompt_logprobs[1:]):
            token = prompt[position + 1]
            assert abs(top[token].logprob - exact[position, token]) < (0.5 if ON_GPU else 2e-4)


def test_structured_output():
    """A grammar is obeyed, and the model decides among what it allows."""
    pattern = r"[0-9]{3}-[a-f]{4}"
    free = SamplingParams(temperature=0.0, max_tokens=8, logprobs=TOP_K)
    bound = SamplingParams(
        temperature=0.0, max_tokens=8, logprobs=TOP_K,
        structured_outputs=StructuredOutputsParams(regex=pattern),
    )
    prompts = ["Question: Ann has 3 apples.", "Question: What is 2 + 2?\nAnswer:"]
    with device_engine(TINY, skip_tokenizer_init=False) as llm:
        outputs = llm.generate(prompts * 2, [free] * 2 + [bound] * 2, use_tqdm=False)
    texts = [output.outputs[0].text for output in outputs]
    print(f"structured output: {texts}")
    assert not any(re.fullmatch(pattern, text) for text in texts[:2])
    assert all(re.fullmatch(pattern, text) for text in texts[2:])
    assert_right(outputs, TINY, "structured output")


def test_prompt_embeddings(checkpoint):
    """Embeddings give what the tokens that they belong to give."""
    reference: AsyncTForCausalLM = reference_model(checkpoint)
    prompts = random_prompts(PROMPT_LENGTHS)
    with device_engine(checkpoint, enable_prompt_embeds=True) as llm:
        dtype = llm.llm_engine.model_config.dtype
        embed = reference.model.embed_tokens.weight.detach().to(dtype)
        embeddings = [embed[torch.tensor(prompt["prompt_token_ids"])] for prompt in prompts]
        outputs = generate(llm, [{"prompt_embeds": embedding} for embedding in embeddings])
    for output, prompt in zip(outputs, prompts, strict=True):
        output.prompt_token_ids = prompt["prompt_token_ids"]
    assert_right(outputs, checkpoint, "prompt embeddings")


def test_a_lora_adapter_is_added_to_every_projection(tmp_path, seed):
    config, tensors = device_tensors(seed)
    rank, scaling = 8, 2.0
    checkpoint = save_checkpoint(tmp_path / "checkpoint", config, tensors)
    adapter = {}
    for name in [name for name in tensors if "_proj." in name]:
        outputs, inputs = tensors[name].shape
        down = torch.randn(rank, inputs) * inputs**-0.5
        up = torch.randn(outputs, rank) * 0.3 * rank**-0.5
        tensors[name] = tensors[name] + scaling * up @ down
        module = f"base_model.model.{name.removesuffix('.weight')}"
        adapter |= {f"{module}.lora_A.weight": down, f"{module}.lora_B.weight": up}
    merged = save_checkpoint(tmp_path / "merged", config, tensors)
    (tmp_path / "adapter").mkdir()
    save_file(adapter, tmp_path / "adapter" / "adapter_model.safetensors")
    settings = dict(
        peft_type="LORA",
        r=rank,
        lora_alpha=scaling * rank,
        target_modules=sorted({name.split(".")[-2] for name in tensors if "_proj." in name}),
    )
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    with device_engine(checkpoint, enable_lora=True) as llm:
        request = LoRARequest("random", 1, str(tmp_path / "adapter"))
        outputs = generate(llm, random_prompts(PROMPT_LENGTHS), lora_request=request)
    assert_right(outputs, merged, "LoRA")
    without = expected(outputs, device_model(checkpoint, torch.float32))
    assert max_difference(served(outputs), without) > BROKEN


def test_reloaded_weights(checkpoint):
    """What every parameter held is forgotten, and read again from the checkpoint."""
    prompts = random_prompts(PROMPT_LENGTHS)
    with device_engine(checkpoint, enable_prefix_caching=False) as llm:
        generate(llm, prompts)
        llm.apply_model(lambda model: [p.data.zero_() for p in model.parameters()] and None)
        llm.collective_rpc("reload_weights")
        outputs = generate(llm, prompts)
    assert_right(outputs, checkpoint, "reloaded weights")


def test_kv_connector(checkpoint, tmp_path):
    """What one engine stored is loaded by the next, whose answers are the same."""
    connector = dict(
        kv_connector="ExampleConnector",
        kv_role="kv_both",
        kv_connector_extra_config={"shared_storage_path": str(tmp_path / "store")},
    )
    prompts = random_prompts((33, 150))
    loaded = []
    for _ in range(2):
        with device_engine(
            checkpoint,
            kv_transfer_config=connector,
            enable_prefix_caching=False,
            max_num_batched_tokens=512,  # this connector does not store prompts in chunks
        ) as llm:
            outputs = generate(llm, prompts)
        assert_right(outputs, checkpoint, f"KV connector, {loaded} tokens loaded before")
        loaded.append(sum(output.num_cached_tokens for output in outputs))
    assert loaded[0] == 0 < loaded[1]


def test_cascade_attention_is_declined(checkpoint, monkeypatch):
    """Requests with a prefix in common, which vLLM would compute once: each reads it by itself."""
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")  # the other never asks
    declined = []
    use = AsyncTMetadataBuilder.use_cascade_attention

    def asked(self, *args, **options):
        declined.append(not use(self, *args, **options))
        return not declined[-1]

    monkeypatch.setattr(AsyncTMetadataBuilder, "use_cascade_attention", asked)
    shared = random_prompts((SHARED,))[0]["prompt_token_ids"]
    prompts = random_prompts((5, 20, 40))
    for prompt in prompts:
        prompt["prompt_token_ids"] = shared + prompt["prompt_token_ids"]
    with device_engine(checkpoint, disable_cascade_attn=False) as llm:
        outputs = generate(llm, prompts)
    assert_right(outputs, checkpoint, f"cascade, declined {len(declined)} times")
    assert all(declined)
    assert declined or not ON_GPU  # on the CPU vLLM does not ask


def test_a_sliding_window_is_refused(checkpoint):
    with pytest.raises(ValueError, match="sliding_window=64: a query sees every key up to its own"):
        with device_engine(checkpoint, hf_overrides={"sliding_window": 64}):
            pass
