"""Runs the commands that documents show, so that they go on working as written.

    python3 tools/documents/commands.py cpu
    python3 tools/documents/commands.py gpu README.md

Commands stand in fenced blocks, and the fence says who runs them:

    ```sh             `cpu`: all such blocks of a document, one after another in one shell
    ```sh gpu         `gpu`, likewise
    ```sh ci          a runner: the lines stand in tools/ci/*.sh, or are such a script
    ```sh //a:b_test  a test: the target is there

Without paths it takes every document that git knows. Stops at the first command that fails.
"""

import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

PLACES = ("cpu", "gpu")

_BLOCK = re.compile(r"^```sh(?P<tag>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"//(?P<package>[\w/]*):(?P<name>\w+)")
# What begins a command, where it is not in such a block.
_STRAY = re.compile(r"^ {4,}(\w+=\S+ )*(\./bazelw|tools/|python3 |pip |vllm )", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """Commands, and the fence's tag ("cpu" where it has none)."""

    tag: str
    text: str


def blocks(document: str) -> list[Block]:
    """The blocks of shell commands, in order."""
    return [Block(match["tag"].strip() or "cpu", match["text"])
            for match in _BLOCK.finditer(document)]


def faults(document: str, root: pathlib.Path) -> Iterator[str]:
    """What keeps commands from being run, of a document of the checkout at `root`."""
    for match in _STRAY.finditer(_BLOCK.sub("", document)):
        yield f"not in a fenced block: {match[0].strip()}..."
    for block in blocks(document):
        target = _TARGET.fullmatch(block.tag)
        if block.tag == "ci":
            yield from (f"no script of tools/ci has it: {line}"
                        for line in _lines(block.text) if not _on_runners(line, root))
        elif target is not None:
            build = root / target["package"] / "BUILD"
            if not build.is_file() or f'"{target["name"]}"' not in build.read_text():
                yield f"no such test: {block.tag}"
        elif block.tag not in PLACES:
            yield f"nobody runs ```sh {block.tag}"


def _lines(text: str) -> list[str]:
    """The commands, without comments."""
    lines = (line.partition(" #")[0].strip() for line in text.splitlines())
    return list(filter(None, lines))


def _on_runners(line: str, root: pathlib.Path) -> bool:
    """Whether a runner's script is it, or has its words in their order, be there others between."""
    if (root / line).is_file():
        return True
    words = r"\b.*".join(map(re.escape, line.removeprefix("./bazelw ").split()))
    return any(re.search(words, script.read_text()) for script in (root / "tools/ci").glob("*.sh"))


def run(document: str, place: str, root: pathlib.Path) -> int:
    """Runs the document's blocks of `place`, in `root`; returns the shell's exit status."""
    text = "".join(block.text for block in blocks(document) if block.tag == place)
    if not text:
        return 0
    with tempfile.TemporaryDirectory() as folder:  # for what the commands write
        return subprocess.run(
            ["bash", "-euxo", "pipefail", "-c", f"WORK={folder}\n{text}"], cwd=root).returncode


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("place", choices=PLACES)
    parser.add_argument("documents", nargs="*")
    arguments = parser.parse_args(argv)
    root = pathlib.Path(__file__).resolve().parents[2]
    names = arguments.documents or subprocess.run(
        ["git", "ls-files", "*.md"], cwd=root, check=True, stdout=subprocess.PIPE,
        text=True).stdout.split()
    code = 0
    for name in names:
        document = (root / name).read_text()
        found = list(faults(document, root))
        failed = not found and run(document, arguments.place, root)
        for fault in found + ["a command failed"] * bool(failed):
            print(f"{name}: {fault}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
