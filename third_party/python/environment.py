"""Makes the Python environment that the build, the tests and every program run in.

The repository rule in environment.bzl runs this file under the bare base interpreter, so it
needs only the standard library. Kinds:

  cpu, cuda   a virtual environment with exactly the packages of the lock, installed once for
              all checkouts under $XDG_CACHE_HOME/asynct/python (or ~/.cache/...), in a folder
              named by the lock's hash and the interpreter
  host        the interpreter and its packages as they are, for machines with no package index

What the build must know of it is written to --output as JSON: see `Environment`.
"""

import argparse
import dataclasses
import importlib.util
import json
import os
import pathlib
import sys
import sysconfig

import installation

SUPPORTED_PYTHONS = ((3, 11), (3, 12))

# Module -> distribution. Without the first the build or the kernels' tests cannot run.
HOST_REQUIRED = {"absl": "absl-py", "numpy": "numpy", "pytest": "pytest", "torch": "torch"}
HOST_OPTIONAL = {
    "lm_eval": "lm-eval", "matplotlib": "matplotlib", "rich": "rich",
    "safetensors": "safetensors", "tqdm": "tqdm", "transformers": "transformers",
    "vllm": "vllm",
}


@dataclasses.dataclass(frozen=True)
class Environment:
    """An environment, as the build sees it; all paths absolute."""

    kind: str
    python: str  # the interpreter to run programs with
    python_headers: str  # holds Python.h
    pybind11_headers: str  # holds pybind11/pybind11.h
    site_packages: list[str]  # where its packages lie


def check_interpreter() -> None:
    """Raises installation.Failure unless this interpreter can serve as the base."""
    here = f"{sys.executable} (Python {sys.version.split()[0]})"
    if sys.version_info[:2] not in SUPPORTED_PYTHONS:
        wanted = " or ".join(f"{major}.{minor}" for major, minor in SUPPORTED_PYTHONS)
        raise installation.Failure(
            f"{here} cannot be used: Python {wanted} is needed. "
            "Set ASYNCT_PYTHON to one, or start the build with ./bazelw, which looks for it.")
    headers = pathlib.Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        raise installation.Failure(
            f"{here} has no C headers: {headers}/Python.h is missing "
            f"(Debian, Ubuntu: apt-get install python3.{sys.version_info.minor}-dev).")


def find_pybind11(site_packages: list[str]) -> str | None:
    """The folder with pybind11's headers: the package's, else the copy that torch brings."""
    for candidate in ("pybind11/include", "torch/include"):
        for root in site_packages:
            if pathlib.Path(root, candidate, "pybind11", "pybind11.h").exists():
                return str(pathlib.Path(root, candidate))
    return None


def host_environment(lock: pathlib.Path) -> Environment:
    """This interpreter as it is. What is missing of the lock's packages is named."""
    pins = installation.read_pins(lock)

    def missing(modules: dict[str, str]) -> list[str]:
        return [f"{name} {pins[name]}" for module, name in modules.items()
                if importlib.util.find_spec(module) is None]

    lacking = missing(HOST_REQUIRED)
    pybind11 = find_pybind11([path for path in sys.path if path])
    if pybind11 is None:
        lacking.append(f"pybind11 {pins['pybind11']}")
    if lacking:
        raise installation.Failure(
            f"ASYNCT_PYTHON_ENV=host takes {sys.executable} as it is, and it lacks packages that "
            f"the build needs (versions as in {lock.name}): {', '.join(lacking)}.")
    if absent := missing(HOST_OPTIONAL):
        installation.say(f"{sys.executable} lacks {', '.join(absent)}: what imports them fails.")
    return Environment(
        kind="host", python=sys.executable, python_headers=sysconfig.get_path("include"),
        pybind11_headers=pybind11, site_packages=[path for path in sys.path if path])


def locked_environment(kind: str, lock: pathlib.Path, cache: pathlib.Path) -> Environment:
    """The environment with the lock's packages, installed now unless the cache has it."""
    if importlib.util.find_spec("ensurepip") is None:
        raise installation.Failure(
            f"{sys.executable} has no ensurepip "
            f"(Debian, Ubuntu: apt-get install python3.{sys.version_info.minor}-venv).")
    root = installation.install(lock, cache, name=kind)
    site_packages = sysconfig.get_path(
        "purelib", "venv", vars={"base": str(root), "platbase": str(root)})
    pybind11 = find_pybind11([site_packages])
    if pybind11 is None:
        raise installation.Failure(f"{lock} holds no pybind11.")
    return Environment(
        kind=kind, python=str(root / "bin" / "python"),
        python_headers=sysconfig.get_path("include"),
        pybind11_headers=pybind11, site_packages=[site_packages])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", required=True, choices=("cpu", "cuda", "host"))
    parser.add_argument("--lock", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    arguments = parser.parse_args(argv)
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    try:
        check_interpreter()
        if arguments.kind == "host":
            environment = host_environment(arguments.lock)
        else:
            environment = locked_environment(
                arguments.kind, arguments.lock, cache / "asynct" / "python")
    except installation.Failure as failure:
        print(f"ERROR: {failure}", file=sys.stderr)
        return 1
    arguments.output.write_text(json.dumps(dataclasses.asdict(environment), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
