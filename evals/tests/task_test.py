"""lm-eval's gsm8k on our problems: the prompt, letter by letter, the scoring, and what fits."""

import pytest
from asynct_evals import task
from asynct_evals.data import Data, InputError
from asynct_evals.evaluation import FLEXIBLE, STRICT
from asynct_tiny import problems as generator
from asynct_tiny.problems import Problem
from asynct_tiny.tokenizer import build_tokenizer
from lm_eval.api.task import ConfigurableTask


@pytest.fixture
def data(seed):
    asked, examples = generator.generate(6, seed, "test"), generator.generate(20, seed, "train")
    return Data(asked, examples, "generated")


def prompts(built: ConfigurableTask) -> list[str]:
    built.build_all_requests()
    return [instance.args[0] for instance in built.instances]


def test_the_prompt_is_gsm8ks():
    examples = [Problem("1 + 1?", "1 + 1 = 2\n#### 2"), Problem("2 + 1?", "2 + 1 = 3\n#### 3")]
    built = task.build("gsm8k", Data([Problem("5 - 1?", "#### 4")], examples, ""))
    task.set_shots(built, 2, seed=0)
    first = "Question: 1 + 1?\nAnswer: 1 + 1 = 2\n#### 2\n\n"
    second = "Question: 2 + 1?\nAnswer: 2 + 1 = 3\n#### 3\n\n"
    asked = "Question: 5 - 1?\nAnswer:"
    assert prompts(built)[0] in (first + second + asked, second + first + asked)
    task.set_shots(built, 0, seed=0)
    assert prompts(built) == [asked]


def test_the_prompt_is_the_one_that_the_tiny_checkpoint_is_trained_on(data, seed):
    built = task.build("gsm8k", data)
    task.set_shots(built, 4, seed)
    by_question = {p.question: p for p in data.fewshot}
    for problem, prompt in zip(data.problems, prompts(built), strict=True):
        shown = [part.split("\nAnswer:")[0] for part in prompt.split("Question: ")[1:-1]]
        assert prompt == generator.prompt(problem.question, [by_question[q] for q in shown])
        assert len(set(shown)) == 4


def test_generation_is_greedy_and_stops_where_gsm8k_says(data):
    built = task.build("gsm8k", data)
    prompts(built)
    assert built.instances[0].args[1] == {
        "until": ["Question:", "</s>", "<|im_end|>"],
        "do_sample": False,
        "temperature": 0.0,
        "max_gen_toks": task.MAX_GEN_TOKS,
    }


@pytest.mark.parametrize(
    "output, strict, flexible",
    [
        (" 3 * 400 = 1,200\n#### 1,200\n\n", 1, 1),
        (" #### 1200.", 1, 1),
        (" The answer is $1200.", 0, 1),
        (" #### 1201", 0, 0),
        (" 1200 and then 7", 0, 0),
        (" no number", 0, 0),
    ],
)
def test_answers_are_scored_by_gsm8ks_two_filters(output, strict, flexible):
    built = task.build("gsm8k", Data([Problem("3 * 400?", "#### 1200")], [], ""))
    task.set_shots(built, 0, seed=0)
    prompts(built)
    instance = built.instances[0]
    instance.resps = [output]
    built.apply_filters()
    for name, expected in ((STRICT, strict), (FLEXIBLE, flexible)):
        score = built.process_results(instance.doc, [instance.filtered_resps[name]])
        assert score == {"exact_match": expected}


def test_fit_gives_the_prompts_that_lm_eval_will_ask(data, seed):
    built, tokenizer = task.build("gsm8k", data), build_tokenizer()
    shots, tokens = task.fit(built, tokenizer, num_fewshot=4, seed=seed, room=10**6)
    task.set_shots(built, 4, seed)
    assert shots == 4
    assert [tokenizer.decode(t) for t in tokens] == prompts(built)


def test_shots_that_do_not_fit_are_left_out(data, seed):
    built, tokenizer = task.build("gsm8k", data), build_tokenizer()
    _, tokens = task.fit(built, tokenizer, num_fewshot=2, seed=seed, room=10**6)
    exactly = max(map(len, tokens))
    assert task.fit(built, tokenizer, num_fewshot=8, seed=seed, room=exactly)[0] >= 2
    shots, shorter = task.fit(built, tokenizer, num_fewshot=2, seed=seed, room=exactly - 1)
    assert shots < 2
    assert max(map(len, shorter)) < exactly


def test_a_problem_that_does_not_fit_alone_is_refused(data, seed):
    long = Problem("How many?" * 100, "#### 1")
    built = task.build("gsm8k", Data([*data.problems, long], data.fewshot, ""))
    with pytest.raises(InputError, match=r"problem 7 alone has 9\d\d tokens.* leaves 700"):
        task.fit(built, build_tokenizer(), num_fewshot=8, seed=seed, room=700)
