"""Paths as the user means them."""

from __future__ import annotations

import os
import pathlib


def user_path(path: str) -> pathlib.Path:
    """From where the user is: `bazel run` starts programs in another directory."""
    return pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "")) / path
