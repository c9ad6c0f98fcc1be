"""What a measurement was made on, for its record."""

import datetime
import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess

import torch

_PACKAGES = ("vllm", "triton", "transformers")


def describe_run(commit: str = "") -> dict[str, object]:
    """The commit (asked of git where it is empty), the date, and the machine."""
    return {"commit": commit or _commit(), "date": datetime.date.today().isoformat(),
            **describe_machine()}


def describe_machine(*packages: str) -> dict[str, object]:
    """The card and its driver, or what runs in its place, and the versions of what computes on it.

    Without a GPU, `card` is "CPU" and `threads` says how many torch uses. `packages` are further
    ones whose versions matter; a package that is not installed has None for it.
    """
    return {
        **(_describe_gpu() if torch.cuda.is_available() else _describe_cpu()),
        "torch": torch.__version__,
        **{package: _version(package) for package in (*_PACKAGES, *packages)},
        "python": platform.python_version(),
    }


def folder_name(machine: dict[str, object]) -> str:
    """A short name of the card for the folder of its results: h200 of an NVIDIA H200."""
    name = str(machine["card"]).lower().removeprefix("nvidia")
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def _describe_gpu() -> dict[str, object]:
    properties = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        check=True, stdout=subprocess.PIPE, text=True).stdout.split()[0]
    return {
        "card": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "driver": driver,
        "cuda": torch.version.cuda,
    }


def _describe_cpu() -> dict[str, object]:
    return {"card": "CPU", "threads": torch.get_num_threads()}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """What git says of the workspace, "unknown" where it says nothing."""
    folder = os.environ.get("BUILD_WORKSPACE_DIRECTORY", pathlib.Path(__file__).parent)
    try:
        git = subprocess.run(
            ["git", "-C", folder, "describe", "--always", "--abbrev=40", "--dirty"],
            capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown"
    return git.stdout.strip() or "unknown"
