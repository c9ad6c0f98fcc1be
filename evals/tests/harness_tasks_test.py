"""Tasks by name on copies of their data, and what is said where the data is missing."""

import pathlib

import datasets
import lm_eval.tasks
import pytest
from arc_problems import arc, write
from asynct_evals import harness_tasks
from asynct_evals.data import InputError
from lm_eval.tasks import TaskManager

FOLDERS = ("arc", "gsm8k", "hellaswag")
FOLDER = pathlib.Path(lm_eval.tasks.__file__).parent


@pytest.fixture(scope="module")
def manager() -> TaskManager:
    """Of two folders of tasks: all of them take long to index."""
    return TaskManager(include_path=[FOLDER / name for name in FOLDERS], include_defaults=False)


def load(manager, path, *, shots=0, name="arc_easy"):
    found = harness_tasks.load(manager, [name], {name: path}, num_fewshot=shots, seed=1)
    return found["tasks"][name]


def contexts(built) -> list[str]:
    built.build_all_requests()
    return [instance.args[0] for instance in built.instances]


@pytest.mark.parametrize("layout", ["{}.jsonl", "ARC-Easy/{}-00000-of-00001.jsonl", "data/{}.json"])
def test_a_folder_with_a_file_a_split(tmp_path, manager, layout):
    write(tmp_path / layout.format("train"), arc(5))
    write(tmp_path / layout.format("test"), arc(2, start=50))
    (tmp_path / "LICENSE").write_text("free")
    asked = contexts(load(manager, tmp_path, shots=1))
    assert len(asked) == 2 * 3  # choices
    for number, context in enumerate(asked):
        shown, question = context.split("\n\n")
        assert question == f"Question: What is {50 + number // 3} + 1?\nAnswer:"
        assert shown in {f"Question: What is {i} + 1?\nAnswer: {i + 1}" for i in range(5)}


def test_parquet_and_what_datasets_saved(tmp_path, manager):
    rows = datasets.Dataset.from_list(arc(3))
    (tmp_path / "p").mkdir()
    rows.to_parquet(tmp_path / "p" / "test.parquet")
    datasets.DatasetDict({"test": rows}).save_to_disk(tmp_path / "saved")
    first, second = (contexts(load(manager, tmp_path / name)) for name in ("p", "saved"))
    assert first == second and len(first) == 9


def test_a_file_is_what_is_asked_and_never_its_own_example(tmp_path, manager):
    path = write(tmp_path / "mine.jsonl", arc(4))
    for context in contexts(load(manager, path, shots=3)):
        *shown, asked = context.split("\n\n")
        assert len(shown) == 3
        assert asked.removesuffix("\nAnswer:") not in "".join(shown)


def test_a_file_of_a_task_that_asks_its_validation_split(tmp_path, manager):
    rows = [{"ind": i, "activity_label": "Work", "ctx_a": f"He has {i} jobs.", "ctx_b": "he",
             "endings": ["rests.", "works.", "goes.", "stays."], "label": "1"}
            for i in range(3)]  # fmt: skip
    for context in contexts(load(manager, write(tmp_path / "a.jsonl", rows), shots=2,
                                 name="hellaswag")):  # fmt: skip
        assert all(context.count(f"He has {i} jobs.") == 1 for i in range(3))


def test_a_task_keeps_its_own_number_of_shots(tmp_path, manager):
    path = write(tmp_path / "mine.jsonl", [{"question": f"{i}?", "answer": f"#### {i}"}
                                           for i in range(7)])  # fmt: skip
    for context in contexts(load(manager, path, shots=None, name="gsm8k")):
        assert context.count("Question: ") == 6  # gsm8k has 5


def test_gsm8k_is_the_same_by_both_programs(tmp_path, manager, seed):
    from asynct_evals import task
    from asynct_evals.data import Data
    from asynct_tiny import problems as generator

    asked, examples = generator.generate(4, seed, "test"), generator.generate(9, seed, "train")
    for split, problems in (("test", asked), ("train", examples)):
        write(tmp_path / f"{split}.jsonl", [p._asdict() for p in problems])
    own = task.build("gsm8k", Data(asked, examples, ""))
    task.set_shots(own, 3, 1)
    assert contexts(own) == contexts(load(manager, tmp_path, shots=3, name="gsm8k"))


@pytest.mark.parametrize(
    "make, why",
    [
        (lambda p: p / "nowhere", "nowhere: no such file or folder"),
        (lambda p: p, "holds no train.jsonl/"),
        (lambda p: write(p / "a.txt", arc(1)), r"a.txt: expected a file named \*.jsonl/"),
        (lambda p: write(p / "a.jsonl", []), "a.jsonl"),
        (lambda p: write(p / "train.jsonl", arc(1)).parent, "holds train, but 'test' is asked"),
    ],
)
def test_a_copy_that_cannot_serve_is_named_with_what_to_fetch(tmp_path, manager, make, why):
    with pytest.raises(InputError, match=f"--data arc_easy: .*{why}") as error:
        load(manager, make(tmp_path))
    fetch = "`hf download --repo-type dataset allenai/ai2_arc --local-dir DIR`"
    assert fetch in str(error.value) and "--data arc_easy=DIR" in str(error.value)


def test_the_hub_out_of_reach_says_what_to_fetch(manager, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("offline mode is enabled")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(InputError, match="hf download .*allenai/ai2_arc.*--data arc_easy=DIR"):
        harness_tasks.load(manager, ["arc_easy"], {}, num_fewshot=None, seed=1)
    with pytest.raises(InputError, match="ask the tasks of ai2_arc by name, with --data"):
        harness_tasks.load(manager, ["ai2_arc"], {}, num_fewshot=None, seed=1)


@pytest.mark.parametrize(
    "names, copied, why",
    [
        (["arc_eazy"], {}, "no task 'arc_eazy': is it arc_easy"),
        (["arc_easy"], {"gsm8k": "x"}, "--data is given for gsm8k, which is not asked"),
        (["ai2_arc"], {"ai2_arc": "x"}, "no single task"),
    ],
)
def test_names_that_make_no_sense(manager, names, copied, why):
    copied = {name: pathlib.Path(path) for name, path in copied.items()}
    with pytest.raises(InputError, match=why):
        harness_tasks.load(manager, names, copied, num_fewshot=0, seed=1)


def test_more_shots_than_there_are_problems(tmp_path, manager):
    path = write(tmp_path / "mine.jsonl", arc(3))
    with pytest.raises(InputError, match="3 examples are to be drawn from 'test', which has 3"):
        load(manager, path, shots=3)
