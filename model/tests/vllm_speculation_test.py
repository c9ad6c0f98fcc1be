"""Speculation: each answer is the model's own, and drafts are verified as decodes."""

from pathlib import Path

import pytest
import torch
from asynct_model import AsyncTConfig
from asynct_model.vllm_model import AsyncTModel
from asynct_tiny.problems import generate, prompt
from asynct_vllm import counters
from device_engine import GRAPHS, ON_GPU, TINY, assert_right, device_engine, device_model
from safetensors.torch import save_file
from transformers import LlamaConfig
from vllm import LLM, SamplingParams
from vllm.config import CUDAGraphMode
from vllm.inputs import TokensPrompt
from vllm_engine import TOP_K, sampling_params

SPECULATED = 3
TOKENS = 40
METRIC = "vllm:spec_decode_num_"

_SETTINGS = dict(
    skip_tokenizer_init=False, max_model_len=1024, enable_prefix_caching=False, **GRAPHS
)


# The layers after which an EAGLE-3 head reads the residual stream.
INNER_LAYERS = (1, 3, 5)


@pytest.fixture
def eagle_head(method: str, tmp_path: Path, seed: int) -> Path:
    """One Llama layer of random weights, whose drafts are as good as none."""
    target = AsyncTConfig.from_pretrained(TINY)
    fields = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads",
              "num_key_value_heads", "head_dim", "max_position_embeddings")
    config = LlamaConfig(
        **{field: getattr(target, field) for field in fields}, num_hidden_layers=1,
        dtype="bfloat16",
        architectures=["LlamaForCausalLMEagle3" if method == "eagle3" else "LlamaForCausalLM"],
        eagle_aux_hidden_state_layer_ids=INNER_LAYERS,
    )
    hidden, inner = config.hidden_size, config.intermediate_size
    queries, keys = (heads * config.head_dim
                     for heads in (config.num_attention_heads, config.num_key_value_heads))
    layer = "midlayer" if method == "eagle3" else "layers.0"
    # An EAGLE-3 head's layer reads embeddings beside what it has of the model.
    read = 2 * hidden if method == "eagle3" else hidden
    shapes = {
        "fc": (hidden, (len(INNER_LAYERS) if method == "eagle3" else 2) * hidden),
        f"{layer}.self_attn.q_proj": (queries, read),
        f"{layer}.self_attn.k_proj": (keys, read),
        f"{layer}.self_attn.v_proj": (keys, read),
        f"{layer}.self_attn.o_proj": (hidden, queries),
        f"{layer}.mlp.gate_proj": (inner, hidden),
        f"{layer}.mlp.up_proj": (inner, hidden),
        f"{layer}.mlp.down_proj": (hidden, inner),
    }
    tensors = {f"{name}.weight": torch.randn(shape) * shape[1] ** -0.5
               for name, shape in shapes.items()}
    norms = [f"{layer}.post_attention_layernorm"]
    if method == "eagle3":
        norms += [f"{layer}.input_layernorm", f"{layer}.hidden_norm", "norm"]
    tensors |= {f"{name}.weight": torch.ones(hidden) for name in norms}
    folder = tmp_path / "eagle"
    folder.mkdir()
    config.save_pretrained(folder)
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def verify(speculation: dict, seed: int) -> dict[str, int]:
    """Serves worked problems with `speculation`; checks the answers and what served them.

    Returns:
        vLLM's counts of drafted and accepted tokens.
    """
    shot, *asked = generate(4, seed)
    prompts = [prompt(problem.question, [shot]) for problem in asked]
    params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, logprobs=TOP_K)
    speculation = {"num_speculative_tokens": SPECULATED, **speculation}
    with device_engine(TINY, speculative_config=speculation, **_SETTINGS) as llm:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        counts = {metric.name.removeprefix(METRIC): metric.value for metric in llm.get_metrics()
                  if metric.name in (METRIC + "draft_tokens", METRIC + "accepted_tokens")}
        prompt_tokens = sum(len(output.prompt_token_ids) for output in outputs)
        check_kernels(llm, prompt_tokens, counts["draft_tokens"])
    print(f"{speculation['method']}: {counts}")
    assert_right(outputs, TINY, speculation["method"])
    return counts


def check_kernels(llm: LLM, prompt_tokens: int, drafted: int) -> None:
    """On the GPU: decodes of several tokens are replayed, and the decode kernel serves them."""
    if not ON_GPU:
        return
    mode = llm.llm_engine.vllm_config.compilation_config.cudagraph_mode
    assert mode.decode_mode() is CUDAGraphMode.FULL
    served = {name: hits.tokens for name, hits in counters.snapshot().items()}
    assert served.pop("hp1_decode_paged") > drafted
    # A draft model that is an AsyncT itself reads prompts too, and drafts with what it has read.
    own = llm.llm_engine.vllm_config.speculative_config.method == "draft_model"
    assert own or sum(served.values()) <= prompt_tokens


def test_ngrams(seed):
    counts = verify(dict(method="ngram", prompt_lookup_max=4, prompt_lookup_min=2), seed)
    assert counts["accepted_tokens"] > 0


def test_a_draft_model(seed):
    """The model is its own draft, so that nearly all is accepted."""
    counts = verify(dict(method="draft_model", model=str(TINY)), seed)
    assert counts["accepted_tokens"] > 0.8 * counts["draft_tokens"]


@pytest.mark.parametrize("method", ("eagle", "eagle3"))
def test_eagle(method, eagle_head, seed):
    """Nearly nothing is accepted: what was written for rejected tokens is never seen."""
    counts = verify(dict(method=method, model=str(eagle_head)), seed)
    assert counts["draft_tokens"] > TOKENS


@pytest.mark.parametrize("method", ("eagle3",))
def test_an_eagle3_head_is_given_the_inner_layers(method, eagle_head, monkeypatch, seed):
    given, forward = [], AsyncTModel.forward

    def recording(self, *args, **options):
        result = forward(self, *args, **options)
        given.append(result[1])
        return result

    tokens = torch.randint(256, (20,))
    speculation = dict(method=method, model=str(eagle_head), num_speculative_tokens=SPECULATED)
    with device_engine(TINY, speculative_config=speculation) as llm:
        monkeypatch.setattr(AsyncTModel, "forward", recording)
        prompt = TokensPrompt(prompt_token_ids=tokens.tolist())
        llm.generate(prompt, sampling_params(), use_tqdm=False)
    reference = device_model(TINY, torch.float32)
    exact = reference(tokens[None].to(reference.device), output_hidden_states=True).hidden_states
    for layer, inner in zip(INNER_LAYERS, given[0], strict=True):
        error = (inner[: len(tokens)].float() - exact[layer][0]).abs().max()
        print(f"after {layer} layers: {error:.1e}")
        assert error < (2**-5 if ON_GPU else 1e-4) * exact[layer].abs().max()
