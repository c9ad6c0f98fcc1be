"""A reduced set of calls for compute-sanitizer: `sanitized.py [--plant] [KERNEL ...]`.

With --plant a table names a block that is not there, which memcheck must find.
"""

import sys

import torch

from asynct_kernels import attend, attention_kernels
from problems import Case
from under_test import arguments, serves

STEPS = {
    "decode": dict(query_lens=(1, 1, 1, 1), seq_lens=(0, 1, 17, 600)),
    "prefill": dict(query_lens=(70, 0, 3), seq_lens=(90, 0, 33)),
    "prompts": dict(query_lens=(70, 0, 3), seq_lens=(70, 0, 3)),
}
# Slots that nothing may read stay uninitialised, so that initcheck sees them read.
COMMON = dict(heads=2, kv_heads=1, poison=None)
CASES = [
    Case(name=f"{step}-{kind}", **COMMON, **lengths, **settings)
    for step, lengths in STEPS.items()
    for kind, settings in dict(
        usual={}, general=dict(window=5, head_dim=64), float8=dict(float8=True)).items()
]


def main(words: list[str]) -> None:
    plant = "--plant" in words
    kernels = [word for word in words if word != "--plant"] or attention_kernels()
    torch.manual_seed(0)
    for kernel in kernels:
        for case in CASES:
            if kernel == "reference" or not serves(kernel, case):
                continue
            given = arguments(kernel, case.make("cuda"))
            if plant:
                given["block_table"].fill_(1 << 27)
            attend(**given, kernel=kernel)
            torch.cuda.synchronize()
            print(kernel, case, flush=True)
            if plant:
                return


if __name__ == "__main__":
    main(sys.argv[1:])
