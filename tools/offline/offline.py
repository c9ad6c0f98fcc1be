"""Packs what the build fetches into a folder, for runners that cannot reach a package index.

    ./bazelw run //tools/offline -- --environment cpu --output DIR

puts into DIR/packages every package of the environment's lock and CUTLASS's headers, each checked
against the lock's hashes, and into DIR/offline.sh the settings by which pip takes them from there.
On the runner, with a Python of the same version, DIR copied to any place:

    source DIR/offline.sh && tools/ci/cpu.sh

Bazel, g++ and Python are the runner's own, as for bazelw; Bazel fetches nothing else. Started again
after an interruption, it fetches what is missing.
"""

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from user_path import user_path

ENVIRONMENTS = ("cpu", "cuda")
CUTLASS_LOCK = "third_party/cutlass/cutlass.lock"
SETTINGS = """\
# Source this: pip takes packages from here and from no index.
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/packages
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$folder
unset folder
"""
_ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*==\S+).*\n(?:    --hash=sha256:.*\n)+", re.M)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class Failure(Exception):
    """A package that cannot be packed."""


def entries(lock: pathlib.Path) -> Iterator[tuple[str, str, set[str]]]:
    """Each package of a lock: "name==version", its lines, its files' hashes."""
    for match in _ENTRY.finditer(lock.read_text()):
        yield match[1], match[0], set(_HASH.findall(match[0]))


def pack(locks: list[pathlib.Path], output: pathlib.Path) -> None:
    """Fetches all packages of the locks that are not in `output` yet, telling the progress.

    Raises:
      Failure: pip cannot fetch one as its lock has it.
    """
    packages = output / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    here = {_sha256(path): path for path in packages.iterdir()}
    wanted = [entry for lock in locks for entry in entries(lock)]
    known = set().union(*(hashes for _, _, hashes in wanted))
    for digest, path in here.items():
        if digest not in known:
            print(f"{path.name} is in no lock, or was cut off: removed", flush=True)
            path.unlink()
    for number, (name, lines, hashes) in enumerate(wanted, start=1):
        state = "here" if hashes & here.keys() else _fetch(name, lines, packages)
        megabytes = sum(path.stat().st_size for path in packages.iterdir()) / 1e6
        print(f"{number} of {len(wanted)}: {name} {state}; {megabytes:.0f} MB", flush=True)
    (output / "offline.sh").write_text(SETTINGS)


def _sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fetch(name: str, lines: str, packages: pathlib.Path) -> str:
    """Has pip fetch one package; "not for this machine" if its marker says so."""
    with tempfile.TemporaryDirectory(dir=packages.parent) as folder:
        requirement = pathlib.Path(folder, "requirement.txt")
        requirement.write_text(lines)
        fetched = pathlib.Path(folder, "fetched")
        fetched.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--require-hashes", "--no-deps",
             "--no-input", "--no-build-isolation", "--progress-bar=off",
             "--disable-pip-version-check", "--dest", fetched, "--requirement", requirement],
            env={**os.environ, "PIP_CONSTRAINT": os.devnull},  # the lock alone chooses versions
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Failure(f"pip cannot fetch {name}:\n{done.stdout}")
        files = list(fetched.iterdir())
        for path in files:
            path.rename(packages / path.name)  # whole files only
    return "fetched" if files else "not for this machine"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--environment", choices=ENVIRONMENTS, default="cpu", help="whose lock")
    parser.add_argument("--output", required=True, help="folder to fill")
    arguments = parser.parse_args(argv)
    root = pathlib.Path(os.environ["BUILD_WORKSPACE_DIRECTORY"])
    locks = [root / f"third_party/python/{arguments.environment}.lock", root / CUTLASS_LOCK]
    try:
        pack(locks, user_path(arguments.output))
    except Failure as failure:
        print(f"offline: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
