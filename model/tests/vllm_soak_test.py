"""A soak: requests come, are preempted, share prefixes and go, and none notices the others."""

import logging
import random
import warnings

import pytest
import torch
from asynct_model import AsyncTForCausalLM
from device_engine import GRAPHS, ON_GPU, device_checkpoint, device_engine, device_model
from vllm import LLM, RequestOutput, SamplingParams
from vllm.inputs import TokensPrompt
from vllm_engine import TOLERANCE, TOP_K, tops

# Requests, of which SEQUENCES run at a time, in a cache for some of them.
REQUESTS, SEQUENCES, BLOCKS = (2048, 64, 120) if ON_GPU else (64, 8, 20)
LONGEST_PROMPT, LONGEST_ANSWER = 96, 64
PREFIXES, PREFIX = 4, 48
ABORTED = 0.1
BATCH = 64  # requests that the reference takes at a time
MEMORY = 64 << 20  # bytes that the process may grow by between half of the requests and all


def random_requests(rng: random.Random) -> dict[str, tuple[list[int], int]]:
    """(prompt, tokens to answer) by name; half of the prompts begin as others do."""
    prefixes = [[rng.randrange(512) for _ in range(PREFIX)] for _ in range(PREFIXES)]
    requests = {}
    for name in range(REQUESTS):
        tokens = [rng.randrange(512) for _ in range(rng.randint(1, LONGEST_PROMPT))]
        prompt = (rng.choice(prefixes) + tokens)[:LONGEST_PROMPT] if name % 2 else tokens
        requests[str(name)] = (prompt, rng.randint(1, LONGEST_ANSWER))
    return requests


def add(llm: LLM, name: str, prompt: list[int], tokens: int) -> None:
    """Asks for the most likely `tokens` tokens after `prompt`."""
    llm.llm_engine.add_request(name, TokensPrompt(prompt_token_ids=prompt), SamplingParams(
        temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=TOP_K))


def serve(
    llm: LLM, requests: dict[str, tuple[list[int], int]], rng: random.Random
) -> tuple[list[RequestOutput], set[str], int]:
    """Serves them all but those that it aborts on the way.

    Returns:
        The answers, what was aborted, and by how many bytes memory grew in the second half.
    """
    engine = llm.llm_engine
    for name, (prompt, tokens) in requests.items():
        add(llm, name, prompt, tokens)
    answers, aborted, half = [], set(), None
    doomed = set(rng.sample(sorted(requests), int(ABORTED * REQUESTS)))
    steps_per_abort = max(1, REQUESTS // len(doomed) // 4)
    step = 0
    while engine.has_unfinished_requests():
        answers += [output for output in engine.step() if output.finished]
        if half is None and len(answers) >= REQUESTS // 2:
            half = used_memory()
        step += 1
        left = doomed - aborted - {answer.request_id for answer in answers}
        if left and step % steps_per_abort == 0:
            name = rng.choice(sorted(left))
            engine.abort_request([name])
            aborted.add(name)
    return answers, aborted, used_memory() - half


def used_memory() -> int:
    """Bytes: of torch on the GPU, or of the process."""
    if ON_GPU:
        return torch.cuda.memory_allocated()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


def assert_nothing_is_left(llm: LLM) -> None:
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    assert not scheduler.requests and not scheduler.running and not scheduler.waiting
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == BLOCKS - 1  # one is vLLM's own


@torch.no_grad()
def alone(answers: list[RequestOutput], reference: AsyncTForCausalLM) -> list[torch.Tensor]:
    """For each answer what the unpaged model has in the place of its log-probabilities."""
    found = []
    for first in range(0, len(answers), BATCH):
        batch = answers[first : first + BATCH]
        read = [torch.tensor([*answer.prompt_token_ids, *answer.outputs[0].token_ids[:-1]])
                for answer in batch]
        # Padding comes last, where no token before it sees it.
        tokens = torch.nn.utils.rnn.pad_sequence(read, batch_first=True).to(reference.device)
        logits = reference(tokens, use_cache=False).logits.float().log_softmax(-1)
        for row, answer, own in zip(logits, batch, read, strict=True):
            names = torch.tensor([[token for token, _ in top] for top in tops([answer])])
            rows = row[len(answer.prompt_token_ids) - 1 : len(own)]
            found.append(rows.gather(-1, names.to(row.device)).cpu())
    return found


def worst(first: list[torch.Tensor], second: list[torch.Tensor]) -> float:
    """The largest root mean square difference of a request; NaN if any is."""
    differences = [(a - b).square().mean().sqrt() for a, b in zip(first, second, strict=True)]
    return torch.stack(differences).max().item()


@pytest.fixture
def checkpoint(tmp_path, seed):
    return device_checkpoint(tmp_path / "checkpoint", seed)


def test_soak(checkpoint, seed, caplog):
    rng = random.Random(seed)
    requests = random_requests(rng)
    with device_engine(
        checkpoint, max_num_seqs=SEQUENCES, num_gpu_blocks_override=BLOCKS, max_model_len=256,
        **GRAPHS,
    ) as llm:
        add(llm, "first", [1], 2)  # vLLM warns once of how tests ask
        while llm.llm_engine.has_unfinished_requests():
            llm.llm_engine.step()
        caplog.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            answers, aborted, growth = serve(llm, requests, rng)
        said = [record for record in caplog.records if record.levelno >= logging.WARNING]
        metrics = {metric.name: metric for metric in llm.get_metrics()}
        assert_nothing_is_left(llm)
    preemptions = metrics["vllm:num_preemptions"].value
    hits = metrics["vllm:prefix_cache_hits"].value
    print(f"{len(answers)} answered, {len(aborted)} aborted, {preemptions} preemptions, {hits} "
          f"tokens found in the cache, {growth} more bytes in the second half")
    assert not said
    assert preemptions > REQUESTS // 8 and hits > 0
    assert growth < MEMORY

    assert len(answers) == len({answer.request_id for answer in answers})
    assert {answer.request_id for answer in answers} == requests.keys() - aborted
    assert 0 < len(aborted)
    for answer in answers:
        prompt, tokens = requests[answer.request_id]
        assert answer.prompt_token_ids == prompt
        assert len(answer.outputs[0].token_ids) == tokens

    ours = [torch.tensor([[entry.logprob for _, entry in top] for top in tops([answer])])
            for answer in answers]
    exact = alone(answers, device_model(checkpoint, torch.float32))
    error, limit = worst(ours, exact), TOLERANCE
    if ON_GPU:
        limit = 2 * worst(alone(answers, device_model(checkpoint, torch.bfloat16)), exact)
    print(f"worst request: root mean square dlogprob {error:.1e}, at most {limit:.1e} allowed")
    assert error <= limit
