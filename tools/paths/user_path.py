"""Paths as the user means them."""

import os
import pathlib


def user_path(path: str | os.PathLike) -> pathlib.Path:
    """`path` from where the user is: `bazel run` starts programs in another directory."""
    return pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "")) / path
