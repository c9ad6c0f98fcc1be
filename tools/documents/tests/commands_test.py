"""The commands of documents: found, refused where nobody runs them, run, and told if they fail."""

import pathlib

import commands
import pytest

DOCUMENT = """\
# Title

```sh
echo "in $PWD" > $WORK/file
```

Text, and `./bazelw test //...` in it.

```sh gpu
nvidia-smi
```

```sh
cat $WORK/file > out   # of the block above
```

```sh ci
./bazelw test //...    # every test
tools/ci/cpu.sh
```

```sh //a/b:c_test
vllm serve
```

```python
print("not a shell's")
```
"""


@pytest.fixture
def root(tmp_path):
    for name, text in {"tools/ci/cpu.sh": "step tools/ci/test.sh --config=ci //...\n",
                       "tools/ci/test.sh": './bazelw test --config=ci //...\n',
                       "a/b/BUILD": 'name = "c_test"\n'}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_blocks_have_tags():
    assert [block.tag for block in commands.blocks(DOCUMENT)] == [
        "cpu", "gpu", "cpu", "ci", "//a/b:c_test"]


def test_a_document_whose_commands_are_all_run_has_no_fault(root):
    assert list(commands.faults(DOCUMENT, root)) == []


@pytest.mark.parametrize("changed, words", [
    (("```sh gpu", "```sh moon"), "nobody runs ```sh moon"),
    (("c_test", "d_test"), "no such test: //a/b:d_test"),
    (("//a/b", "//a"), "no such test: //a:c_test"),
    (("test //...    #", "run //evals:gsm8k    #"), "has it: ./bazelw run //evals:gsm8k"),
    (("tools/ci/cpu.sh", "tools/ci/tpu.sh"), "has it: tools/ci/tpu.sh"),
    (("# Title", "    ./bazelw run //a"), "not in a fenced block: ./bazelw..."),
    (("# Title", "    ASYNCT_SEED=1 tools/x"), "not in a fenced block: ASYNCT_SEED=1 tools/..."),
])  # fmt: skip
def test_commands_that_nobody_runs_are_told(root, changed, words):
    (fault,) = commands.faults(DOCUMENT.replace(*changed), root)
    assert words in fault


def test_blocks_of_a_place_are_run_in_one_shell(root):
    assert commands.run(DOCUMENT, "cpu", root) == 0
    assert (root / "out").read_text() == f"in {root}\n"


@pytest.mark.parametrize("failing", ["false", "cat $NEVER_SET", "false | cat"])
def test_a_command_that_fails_ends_it(root, failing):
    document = f"```sh\n{failing}\ntouch later\n```\n"
    assert commands.run(document, "cpu", root) != 0
    assert not (root / "later").exists()
    assert commands.run(document, "gpu", root) == 0


def test_the_readme_is_run():
    readme = pathlib.Path("README.md").read_text()
    assert {"cpu", "gpu", "ci"} <= {block.tag for block in commands.blocks(readme)}
    assert not commands._STRAY.search(commands._BLOCK.sub("", readme))
