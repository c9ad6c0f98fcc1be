"""Which of vLLM's projections may compute what follows them in the same kernel, and why not."""

import torch
from asynct_kernels.gemm import CAPABILITY
from vllm import envs
from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.linear import (
    LinearBase,
    RowParallelLinear,
    UnquantizedLinearMethod,
)
from vllm.platforms import current_platform

logger = init_logger(f"vllm.{__name__}")


def takes_epilogue(linear: LinearBase, name: str, follower: str) -> bool:
    """Whether `asynct_kernels.linear_*` may multiply by the weight of `linear`; logs the answer.

    Asked once, at construction: everything that it depends on is known then.

    Args:
        linear: the projection.
        name: its name in the log.
        follower: what follows it, likewise.
    """
    reason = refusal(linear)
    if reason is None:
        logger.info_once("AsyncT: %s with %s in one kernel, where that is faster", name, follower)
    else:
        logger.info_once("AsyncT: %s, then %s: %s", name, follower, reason)
    return reason is None


def refusal(linear: LinearBase) -> str | None:
    """Why vLLM itself has to multiply by the weight of `linear`; None if it need not."""
    if not current_platform.is_cuda():
        return "there is no CUDA device"
    if not current_platform.is_device_capability(CAPABILITY):
        return f"the kernels are for compute capability {CAPABILITY[0]}.{CAPABILITY[1]} alone"
    if type(linear.quant_method) is not UnquantizedLinearMethod:
        return f"the weight is quantised ({type(linear.quant_method).__name__})"
    if linear.weight.dtype not in (torch.float16, torch.bfloat16):
        return f"the weight has dtype {linear.weight.dtype}"
    if any(size % 16 for size in linear.weight.shape):
        return f"the weight has shape {list(linear.weight.shape)}, not of multiples of 16"
    if isinstance(linear, RowParallelLinear) and linear.tp_size > 1:
        return f"the output is summed over {linear.tp_size} ranks"
    if get_current_vllm_config().lora_config is not None:
        return "LoRA adapters add to the output"
    if envs.VLLM_BATCH_INVARIANT:
        return "a row's bits may not depend on the number of rows (VLLM_BATCH_INVARIANT)"
    return None
