"""compute-sanitizer's tools over the reduced set of sanitized.py, every kernel in it."""

import os
import shutil
import subprocess
import sys

import pytest

import sanitized
from asynct_kernels import attention_kernels
from under_test import serves

SANITIZER = shutil.which("compute-sanitizer", path=os.pathsep.join(
    [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]))
# Parts of the names of our kernels; PyTorch's own are not looked at.
OURS = ("asynct", "attend_tiles", "sum_splits")

needs_sanitizer = pytest.mark.skipif(
    SANITIZER is None, reason="compute-sanitizer is not installed")


def sanitize(tool: str, *flags: str) -> subprocess.CompletedProcess:
    """Runs sanitized.py, every allocation its own so that its bounds are seen."""
    filters = [f"--kernel-name=kns={name}" for name in OURS]
    return subprocess.run(
        [SANITIZER, f"--tool={tool}", "--error-exitcode=99", "--print-limit=10", *filters,
         sys.executable, sanitized.__file__, *flags],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                          "PYTHONPATH": os.pathsep.join(sys.path)})


@pytest.mark.gpu
@needs_sanitizer
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck", "initcheck"])
def test_clean(tool):
    result = sanitize(tool)
    assert result.returncode == 0, result.stdout[-4000:]
    ran = {line.split()[0] for line in result.stdout.splitlines() if line.startswith(
        tuple(attention_kernels()))}
    assert ran == set(attention_kernels()) - {"reference"}


@pytest.mark.gpu
@needs_sanitizer
def test_a_planted_error_is_found():
    result = sanitize("memcheck", "--plant")
    assert result.returncode != 0 and "Invalid __global__ read" in result.stdout


def test_every_kernel_has_a_case():
    for kernel in attention_kernels():
        assert any(serves(kernel, case) for case in sanitized.CASES), kernel
