"""The portable kernels by their PTX: run with CUDA_FORCE_PTX_JIT=1.

PyTorch's own kernels have no PTX for every card, so all data is made on the CPU.
"""

import os

import torch

from asynct_kernels import attend, attention_kernels, explain
from asynct_kernels.attention import find_kernel
from device_copies import on_device
from oracle import assert_accurate, truth
from problems import Case
from under_test import serves

CASES = [
    Case(name="decode", query_lens=(1,) * 4, seq_lens=(0, 1, 33, 700)),
    Case(name="prefill", query_lens=(70, 1, 40), seq_lens=(90, 30, 40), dtype=torch.float16,
         head_dim=64, window=5),
]


def portable_kernels() -> list[str]:
    """The CUDA kernels that the driver may have to compile."""
    return [name for name in attention_kernels()
            if (allowed := find_kernel(name).limits.capability) and allowed[1] is None]


def main() -> None:
    assert os.environ["CUDA_FORCE_PTX_JIT"] == "1"
    for case in CASES:
        facts = truth(case, "cpu", 0)
        given = on_device(facts.call.arguments())
        for kernel in portable_kernels():
            if serves(kernel, case):
                assert explain(kernel, **given) == []
                out = torch.empty(facts.call.query.shape, dtype=case.dtype, device="cuda")
                assert_accurate(attend(**given, kernel=kernel, out=out).cpu(), facts)
                print("accurate", kernel, case, flush=True)


if __name__ == "__main__":
    main()
