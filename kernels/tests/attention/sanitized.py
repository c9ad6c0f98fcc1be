"""A reduced set of calls for compute-sanitizer: `sanitized.py [--plant] [KERNEL ...]`.

With --plant a table names the last block that a kernel can tell from others, far past the cache's
end, which memcheck must find.
"""

import dataclasses
import sys

import torch

from asynct_kernels import attend, attention_kernels
from device_copies import on_device
from problems import Case
from under_test import keywords, serves

STEPS = {
    "decode": dict(query_lens=(1, 1, 1, 1), seq_lens=(0, 1, 17, 600)),
    "prefill": dict(query_lens=(70, 0, 3), seq_lens=(90, 0, 33)),
    "prompts": dict(query_lens=(70, 0, 3), seq_lens=(70, 0, 3)),
}
COMMON = dict(heads=2, kv_heads=1)
CASES = [
    Case(name=f"{step}-{kind}", **COMMON, **lengths, **settings)
    for step, lengths in STEPS.items()
    for kind, settings in dict(
        usual={}, general=dict(window=5, head_dim=64), float8=dict(float8=True)).items()
]
CASES += [dataclasses.replace(case, name=f"{case.name}-raw", raw=True)
          for case in CASES if case.can_be_raw]


def main(words: list[str]) -> None:
    plant = "--plant" in words
    kernels = [word for word in words if word != "--plant"] or attention_kernels()
    torch.manual_seed(0)
    for kernel in kernels:
        for case in CASES:
            if kernel == "reference" or not serves(kernel, case):
                continue
            given = keywords(kernel, case.make("cpu"))
            if plant:
                given["block_table"].fill_((1 << 25) - 1)
            out = torch.empty(given["query"].shape, dtype=case.dtype, device="cuda")
            attend(**on_device(given), kernel=kernel, out=out)
            torch.cuda.synchronize()
            print(kernel, case, flush=True)
            if plant:
                return


if __name__ == "__main__":
    main(sys.argv[1:])
