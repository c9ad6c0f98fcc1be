"""The kernels that other cards run by their PTX, compiled by the driver of this one."""

import os
import subprocess
import sys

import pytest

import forced_ptx


@pytest.mark.gpu
def test_accurate_from_ptx():
    result = subprocess.run(
        [sys.executable, forced_ptx.__file__], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=os.environ | {"CUDA_FORCE_PTX_JIT": "1", "CUDA_CACHE_DISABLE": "1",
                                     "PYTHONPATH": os.pathsep.join(sys.path)})
    assert result.returncode == 0, result.stdout[-4000:]
    accurate = {line.split()[1] for line in result.stdout.splitlines()
                if line.startswith("accurate")}
    assert accurate == set(forced_ptx.portable_kernels())


def test_which_kernels_are_portable():
    assert set(forced_ptx.portable_kernels()) == {"hp1_decode_paged", "hp1_prefill_mma"}
