"""`vllm serve` in an environment that has the wheel, asked by OpenAI's client."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import torch
from asynct_tiny.problems import DELIMITER, generate, prompt
from wheel_environment import WheelEnvironment

TINY = Path("model/tiny/checkpoint").resolve()
START_SECONDS = 400  # some 40, were the machine ours alone
STOP_SECONDS = 30
PROBLEMS = 8
# On the CPU, what vLLM would compile takes longer than all the rest.
CPU_SETTINGS = ["--enforce-eager", "--max-num-seqs=8"]
CPU_VARIABLES = {"TORCHDYNAMO_DISABLE": "1"}
GPU_SETTINGS = ["--gpu-memory-utilization=0.2"]


@contextlib.contextmanager
def server(environment: WheelEnvironment, log: Path) -> Iterator[str]:
    """Serves the tiny checkpoint; yields the URL. What vLLM says is in `log`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gpu = torch.cuda.is_available()
    settings, variables = (GPU_SETTINGS, {}) if gpu else (CPU_SETTINGS, CPU_VARIABLES)
    command = [environment.python, "-m", "vllm.entrypoints.cli.main", "serve", TINY,
               "--host=127.0.0.1", f"--port={port}", *settings]
    with open(log, "w") as output, subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            **environment.process_settings(**variables)) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(f"{url}/health", process, log)
            yield url
        finally:
            stop(process)


def wait_until_healthy(url: str, process: subprocess.Popen, log: Path) -> None:
    """Returns once vLLM serves; else the test fails with all that vLLM said."""
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # nobody listens yet
            if urllib.request.urlopen(url, timeout=5).status == 200:
                return
        time.sleep(0.5)
    code = process.returncode
    what = f"was not ready in {START_SECONDS} s" if code is None else f"ended with code {code}"
    pytest.fail(f"vllm serve {what}:\n{log.read_text()}", pytrace=False)


def stop(process: subprocess.Popen) -> None:
    """Ends the server and the processes that it started, politely first."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="module")
def client(tmp_path_factory, log) -> Iterator[openai.OpenAI]:
    environment = WheelEnvironment(tmp_path_factory.mktemp("environment"))
    environment.install()
    with server(environment, log) as url:
        # It repeats what finds its connection closed, as vLLM leaves it after some refusals.
        yield openai.OpenAI(base_url=f"{url}/v1", api_key="none")


@pytest.fixture(autouse=True)
def told(client, log) -> Iterator[None]:
    """Has the report of a test that fails show what vLLM said during the test."""
    before = len(log.read_text())
    yield
    print(log.read_text()[before:])


@pytest.fixture(scope="module")
def model(client) -> str:
    (model,) = client.models.list()
    return model.id


@pytest.fixture
def problems(seed):
    return generate(PROBLEMS, seed)


def final_answer(text: str) -> str:
    """The N of the line "#### N" that ends an answer."""
    found = re.search(r"#### (\d+)$", text)
    return found.group(1) if found else f"none in {text!r}"


def assert_most_are_right(answers: list[str], problems) -> None:
    wrong = [(p, a) for p, a in zip(problems, answers, strict=True)
             if final_answer(a) != final_answer(p.answer)]
    assert len(wrong) <= 1, wrong


def user(question: str) -> dict[str, str]:
    return {"role": "user", "content": question}


def chat(client, model, messages, **options):
    return client.chat.completions.create(
        model=model, messages=messages, temperature=0, **options)


def test_completions(client, model, problems):
    choices = client.completions.create(
        model=model, prompt=[prompt(p.question) for p in problems], temperature=0, max_tokens=200
    ).choices
    assert {choice.finish_reason for choice in choices} == {"stop"}
    assert_most_are_right([choice.text for choice in choices], problems)


def test_chat_completions(client, model, problems):
    choices = [chat(client, model, [user(p.question)]).choices[0] for p in problems]
    assert {choice.finish_reason for choice in choices} == {"stop"}
    assert_most_are_right([choice.message.content for choice in choices], problems)


def test_streamed_completion_is_the_whole_one_token_by_token(client, model, problems):
    arguments = dict(model=model, prompt=prompt(problems[0].question), temperature=0,
                     max_tokens=200)
    whole = client.completions.create(**arguments)
    parts = [chunk.choices[0] for chunk in client.completions.create(**arguments, stream=True)]
    assert "".join(part.text for part in parts) == whole.choices[0].text
    assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert len(parts) > whole.usage.completion_tokens / 2


def test_streamed_chat_is_the_whole_one_token_by_token(client, model, problems):
    messages = [user(problems[0].question)]
    whole = chat(client, model, messages)
    chunks = list(chat(client, model, messages, stream=True,
                       stream_options={"include_usage": True}))
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(part.delta.content or "" for part in parts)
    assert text == whole.choices[0].message.content
    assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert len(parts) > whole.usage.completion_tokens / 2
    assert chunks[-1].usage == whole.usage


def test_a_longer_chat_is_answered_with_what_was_said_as_examples(client, model, problems):
    messages, answers = [], []
    for problem in problems:
        messages.append(user(problem.question))
        answers.append(chat(client, model, messages, stop=DELIMITER).choices[0].message.content)
        messages.append({"role": "assistant", "content": answers[-1]})
    assert_most_are_right(answers, problems)


def test_metrics_show_what_attention_served(client, model, problems):
    def tokens() -> float:
        shown = urllib.request.urlopen(f"{client.base_url}".replace("/v1/", "/metrics")).read()
        lines = shown.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines
                   if line.startswith("vllm:asynct_attention_tokens_total{"))

    before = tokens()
    usage = client.completions.create(
        model=model, prompt=prompt(problems[0].question), max_tokens=20).usage
    # The step that put out the last token is shown with the next one at the latest.
    assert tokens() - before >= usage.completion_tokens - 2


def test_a_role_that_the_model_never_saw_is_refused(client, model):
    with pytest.raises(openai.BadRequestError, match="alternate.*message 1 is of role system"):
        chat(client, model, [{"role": "system", "content": "Be brief."}, user("1 + 1?")])


def test_a_prompt_longer_than_the_context_is_refused(client, model):
    with pytest.raises(openai.BadRequestError, match="2048"):
        client.completions.create(model=model, prompt="1" * 3000, max_tokens=1)
