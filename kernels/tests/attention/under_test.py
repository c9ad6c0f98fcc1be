"""Which kernel is tested with which case, and where."""

import dataclasses
import os
from collections.abc import Iterable

import pytest
import torch

from asynct_kernels import attention_kernels, explain
from asynct_kernels.attention import find_kernel
from problems import Call, Case

HOPPER = (9, 0)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton's kernels run on the CPU alone
CPU_PRODUCTS = 1 << (23 if INTERPRETED else 26)  # larger cases are left to the GPU
INTERPRETED_REQUESTS = 8  # a program takes some 20 ms
REFERENCE_PRODUCTS = 1 << 36  # likewise to the other kernels


def serves(kernel: str, case: Case, capability: tuple[int, int] | None = HOPPER) -> bool:
    """Whether the kernel says that it can serve the case, device data aside."""
    found = find_kernel(kernel)
    if found.layer_reasons(case.layer, capability):
        return False
    limits = found.limits
    return ((limits.query_len is None or max(case.query_lens) <= limits.query_len)
            and (limits.fresh != "required" or case.fresh)
            and (limits.takes_raw or not case.raw)
            and limits.alignment <= case.alignment)


def runs(
    cases: Iterable[Case], kernels: Iterable[str] = attention_kernels(), on_cpu: bool = True
) -> pytest.MarkDecorator:
    """Parametrises a test by `case`, `kernel` and `device`, case by case; kernels that take a raw
    step of a decode are tested with that too."""
    parameters = []
    for case in cases:
        small = dataclasses.replace(case, dtype=torch.float16) if INTERPRETED else case
        for kernel in kernels:
            if on_cpu and _fits_cpu(small) and serves(kernel, small, None):
                parameters.append(pytest.param(small, kernel, "cpu"))
            if INTERPRETED or kernel == "reference" and case.products > REFERENCE_PRODUCTS:
                continue
            forms = [case]
            if find_kernel(kernel).limits.fresh == "raw" and case.can_be_raw:
                forms.append(dataclasses.replace(case, name=f"{case.name}-raw", raw=True))
            parameters += [pytest.param(form, kernel, "cuda", marks=pytest.mark.gpu)
                           for form in forms if serves(kernel, form)]
    return pytest.mark.parametrize("case, kernel, device", parameters, ids=str)


def _fits_cpu(case: Case) -> bool:
    if INTERPRETED and len(case.query_lens) > INTERPRETED_REQUESTS:
        return False
    return case.products <= CPU_PRODUCTS and case.spare_blocks <= 1000


def arguments(kernel: str, call: Call) -> dict[str, object]:
    """attend's keywords for this kernel, which must have nothing against them."""
    found = keywords(kernel, call)
    assert explain(kernel, **found) == []
    return found


def keywords(kernel: str, call: Call) -> dict[str, object]:
    """attend's keywords for this kernel, in the cache or, if it writes that itself, beside it."""
    if call.case.raw:
        return call.raw_arguments()
    fresh = find_kernel(kernel).limits.fresh == "required"
    return call.fresh_arguments() if fresh else call.arguments()
