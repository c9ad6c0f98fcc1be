"""The kernels of attention, by name."""

from asynct_kernels.attention.decode import DecodePagedKernel
from asynct_kernels.attention.kernel import AttentionKernel
from asynct_kernels.attention.library import register
from asynct_kernels.attention.prefill_mma import PrefillMmaKernel
from asynct_kernels.attention.prefill_wgmma import (
    PrefillGatherKernel,
    PrefillSuperPageKernel,
    PrefillWgmmaKernel,
)
from asynct_kernels.attention.reference import ReferenceKernel
from asynct_kernels.attention.triton_kernels import TritonDecodeKernel, TritonPrefillKernel

_KERNELS: dict[str, AttentionKernel] = {
    kernel.name: kernel
    for kernel in (
        ReferenceKernel(),
        DecodePagedKernel(),
        PrefillMmaKernel(),
        PrefillWgmmaKernel(),
        PrefillSuperPageKernel(),
        PrefillGatherKernel(),
        TritonDecodeKernel(),
        TritonPrefillKernel(),
    )
}

for _kernel in _KERNELS.values():
    register(_kernel)


def attention_kernels() -> tuple[str, ...]:
    """The names of all kernels, whatever machine this is."""
    return tuple(_KERNELS)


def find_kernel(name: str) -> AttentionKernel:
    """The kernel of that name.

    Raises:
        ValueError: if there is none.
    """
    if name not in _KERNELS:
        raise ValueError(f"kernel is {name!r}: must be one of {', '.join(_KERNELS)}")
    return _KERNELS[name]
