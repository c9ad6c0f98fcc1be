"""Runs vLLM and compares it, by log-probabilities, with the unpaged Hugging Face model.

Engines run in this process; the environment that this takes is in the BUILD file (`ENGINE`).
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from asynct_model import AsyncTForCausalLM
from asynct_vllm.builder import AsyncTMetadataBuilder
from vllm import LLM, RequestOutput, SamplingParams, envs
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.inputs import TokensPrompt
from vllm.logprobs import Logprob

STEPS = 12
TOP_K = 20
# Rounding in float32, amplified by three layers, comes to some 1e-5. Broken attention must move the
# log-probabilities hundreds of times as far as is tolerated.
TOLERANCE = 2e-4
BROKEN = 500 * TOLERANCE

_VOCABULARY = 512
_PROMPT_LENGTHS = (1, 2, 3, 7, 31, 32, 33, 65, 150, 300)
_SETTINGS = dict(
    skip_tokenizer_init=True,
    enforce_eager=True,
    seed=0,
    dtype="float32",
    block_size=16,
    max_model_len=512,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    enable_chunked_prefill=True,
    enable_prefix_caching=True,
    disable_log_stats=False,
)


@contextlib.contextmanager
def engine(checkpoint: Path, **settings) -> Iterator[LLM]:
    """An engine with small batches, so that prompts come in chunks; shut down at the end."""
    envs.disable_envs_cache()  # else vLLM goes by the first engine's environment
    with contextlib.ExitStack() as stack:
        stack.callback(cleanup_dist_env_and_memory)
        llm = LLM(**engine_settings(checkpoint, **settings))
        stack.callback(llm.llm_engine.engine_core.shutdown)
        yield llm


def engine_settings(checkpoint: Path, **settings) -> dict:
    """The arguments of the LLM that `engine` starts."""
    return {**_SETTINGS, "model": str(checkpoint), **settings}


def random_prompts(lengths: Sequence[int] = _PROMPT_LENGTHS) -> list[TokensPrompt]:
    """Prompts of random tokens; the default lengths surround block and chunk edges."""
    return [
        TokensPrompt(prompt_token_ids=torch.randint(_VOCABULARY, (length,)).tolist())
        for length in lengths
    ]


def sampling_params() -> SamplingParams:
    """Greedy continuations of STEPS tokens, with the log-probabilities of TOP_K tokens each."""
    return SamplingParams(
        temperature=0.0, max_tokens=STEPS, ignore_eos=True, detokenize=False, logprobs=TOP_K
    )


def generate(llm: LLM, prompts: list[TokensPrompt], **options) -> list[RequestOutput]:
    """The outputs of `sampling_params()`."""
    return llm.generate(prompts, sampling_params(), use_tqdm=False, **options)


def reference_model(checkpoint: Path, dtype: torch.dtype = torch.float32) -> AsyncTForCausalLM:
    """The Hugging Face model of a checkpoint."""
    return AsyncTForCausalLM.from_pretrained(checkpoint, dtype=dtype).eval()


def difference(outputs: list[RequestOutput], reference: AsyncTForCausalLM) -> float:
    """The largest |difference| of log-probability over the top tokens of every step; NaN stays NaN.

    The reference reads the prompt and vLLM's own continuation in one unpaged forward pass, so a
    near tie that the two decide differently does not matter.
    """
    return max_difference(served(outputs), expected(outputs, reference))


def served(outputs: list[RequestOutput]) -> torch.Tensor:
    """vLLM's log-probabilities: [completions' tokens, TOP_K], in the order of its own ranks."""
    return torch.tensor([[entry.logprob for _, entry in top] for top in tops(outputs)])


@torch.no_grad()
def expected(outputs: list[RequestOutput], reference: AsyncTForCausalLM) -> torch.Tensor:
    """What the reference has in the place of each value of `served(outputs)`."""
    rows = []
    for output in outputs:
        prompt = output.prompt_token_ids
        for completion in output.outputs:
            tokens = prompt + list(completion.token_ids[:-1])
            logits = reference(
                torch.tensor([tokens], device=reference.device), use_cache=False
            ).logits[0, len(prompt) - 1 :]
            rows.append(logits.float().log_softmax(-1).cpu())
    names = torch.tensor([[token for token, _ in top] for top in tops(outputs)])
    return torch.cat(rows).gather(-1, names)


def max_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest |first - second|, NaN if any is."""
    return (first - second).abs().max().item()


def root_mean_square(first: torch.Tensor, second: torch.Tensor) -> float:
    """Of first - second, NaN if any is."""
    return (first - second).square().mean().sqrt().item()


def tops(outputs: list[RequestOutput]) -> list[list[tuple[int, Logprob]]]:
    """Each token's TOP_K (token, log-probability), without what else vLLM puts before them: a
    sampled token that is none of them."""
    return [
        list(top.items())[-TOP_K:]
        for output in outputs
        for completion in output.outputs
        for top in completion.logprobs
    ]


@contextlib.contextmanager
def recorded_steps() -> Iterator[list[list[tuple[int, int]]]]:
    """Collects the (query length, sequence length) of each request of every step that is built."""
    steps = []
    build = AsyncTMetadataBuilder.build

    def recording(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        query_lens = common.query_start_loc_cpu.diff()[: common.num_reqs]
        steps.append(list(zip(query_lens.tolist(), common.seq_lens[: common.num_reqs].tolist())))
        return build(self, common_prefix_len, common_attn_metadata, fast_build)

    AsyncTMetadataBuilder.build = recording
    try:
        yield steps
    finally:
        AsyncTMetadataBuilder.build = build
