"""What the compiler made of the kernels, by the disassembler that comes with Triton."""

import collections
import pathlib
import re
import subprocess

import pytest
import triton

from asynct_kernels import _C

LOCAL_MEMORY = ("LDL", "STL")  # what a spilled register, or an array that is indexed, becomes


@pytest.fixture(scope="module")
def mnemonics() -> dict[str, set[str]]:
    """The instructions that occur in each kernel, by its mangled name, without their modifiers."""
    tools = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin"
    listing = subprocess.run([tools / "cuobjdump", "-sass", _C.__file__], check=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    found = collections.defaultdict(set)
    kernel = None
    for line in listing.splitlines():
        if "Function : " in line:
            kernel = line.split("Function : ")[1].strip()
        elif instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@\S+ )?([A-Z0-9]+)", line):
            found[kernel].add(instruction[1])
    assert found, "no kernel is disassembled"
    return found


def test_the_wgmma_prefill_multiplies_by_wgmma(mnemonics):
    kernels = [name for name in mnemonics if "prefill_wgmma6Kernel" in name]
    assert len(kernels) == 2 * 3 * 2  # dtypes, head sizes, gates
    for kernel in kernels:
        assert "HGMMA" in mnemonics[kernel] and "HMMA" not in mnemonics[kernel], kernel


def test_no_kernel_uses_local_memory(mnemonics):
    for kernel, used in mnemonics.items():
        assert used.isdisjoint(LOCAL_MEMORY), kernel
