"""The plan of a step: what serves its attention, and why. Pure, of what the host knows."""

import dataclasses
import functools

from asynct_kernels.attention import LayerShape, find_kernel
from asynct_vllm.settings import Settings, TorchPath

DECODE_PAGED = "hp1_decode_paged"
PREFILL_FRESH = "hp1_prefill_super_page"  # reads keys and values as the projection wrote them
_WGMMA_KERNELS = (PREFILL_FRESH, "hp1_prefill_wgmma")

# In the order in which they are preferred.
DECODE_KERNELS = (DECODE_PAGED, "triton_decode")
PREFILL_KERNELS = (*_WGMMA_KERNELS, "hp1_prefill_mma", "triton_prefill")

# Whose bits of a query depend on nothing but its own request, however long the queries and their
# chunks are: it serves all of them in vLLM's batch-invariant mode.
INVARIANT_KERNEL = "hp1_prefill_mma"

# Those that do a layer's norms, RoPE and cache write in their own launch, where no request reads
# another's keys of the step.
NORMALISING_KERNELS = (DECODE_PAGED,)

DEFAULT_TORCH_PATH: TorchPath = "gather"


@dataclasses.dataclass(frozen=True)
class StepShape:
    """A step as the host sees it; the decodes come first.

    Attributes:
        num_decodes: leading requests of one query token, of up to 1 + k where k tokens are
            speculated, those that pad a graph included.
        num_prefills: the other requests.
        fresh: whether no prefill has keys from before this step.
        num_tokens: query tokens.
        max_query_len: of one request.
        max_seq_len: an upper bound of a request's keys.
    """

    num_decodes: int
    num_prefills: int
    fresh: bool
    num_tokens: int
    max_query_len: int
    max_seq_len: int


@dataclasses.dataclass(frozen=True)
class Plan:
    """What serves a step's attention.

    Attributes:
        torch_path: the PyTorch path that serves the whole step; None where kernels do.
        decode, prefill: the kernels (`asynct_kernels.attention_kernels()`) of the decodes and of
            the other requests; None where there are none of them.
        reason: why, with what each preferred kernel was passed over for.
    """

    torch_path: TorchPath | None
    decode: str | None
    prefill: str | None
    reason: str

    def __str__(self) -> str:
        served = [f"{part} by {name}" for part, name in (
            ("whole step", self.torch_path), ("decodes", self.decode), ("prefills", self.prefill))
            if name is not None]
        return f"attention: {', '.join(served) or 'nothing to do'} ({self.reason})"


def plan(
    shape: StepShape, layer: LayerShape, capability: tuple[int, int] | None, settings: Settings
) -> Plan:
    """Chooses what serves a step. Pure: equal arguments give equal plans.

    Whether the decodes have a kernel, and which, depends on the layer and the device alone: a
    captured graph of decodes replays what was planned when it was captured.

    Args:
        shape: the step.
        layer: what the attention layers have in common.
        capability: of the CUDA device; None on any other.
        settings: the user's choices.
    """
    return _plan(shape.num_decodes > 0, shape.num_prefills > 0, shape.fresh,
                 shape.max_query_len >= settings.wgmma_min_tq, layer, capability, settings)


@functools.cache  # few, and one is wanted in every step
def _plan(
    decodes: bool, prefills: bool, fresh: bool, long: bool, layer: LayerShape,
    capability: tuple[int, int] | None, settings: Settings
) -> Plan:
    if settings.torch_path is not None:
        return Plan(settings.torch_path, None, None,
                    f"VLLM_HP1_TORCH_PATH is {settings.torch_path}")
    if settings.batch_invariant:
        return Plan(None, INVARIANT_KERNEL if decodes else None,
                    INVARIANT_KERNEL if prefills else None, "VLLM_BATCH_INVARIANT is 1")
    decode = _choose(_allowed(DECODE_KERNELS, settings), layer, capability)
    prefill = _choose(
        tuple(name for name in _allowed(PREFILL_KERNELS, settings)
              if (long or name not in _WGMMA_KERNELS) and (fresh or name != PREFILL_FRESH)),
        layer, capability)
    if decode.kernel is None or prefill.kernel is None:
        return Plan(DEFAULT_TORCH_PATH, None, None,
                    "no kernel serves: " + "; ".join(decode.passed_over + prefill.passed_over))
    reasons = [*decode.passed_over] if decodes else []
    if prefills:
        reasons.append("prompts are fresh" if fresh else "prompts have a prefix")
        if not long:
            reasons.append(f"none is as long as VLLM_HP1_WGMMA_MIN_TQ, {settings.wgmma_min_tq}")
        reasons += prefill.passed_over
    return Plan(
        torch_path=None,
        decode=decode.kernel if decodes else None,
        prefill=prefill.kernel if prefills else None,
        reason="; ".join(reasons) or "as preferred")


def invariance_reasons(
    layer: LayerShape, capability: tuple[int, int] | None, settings: Settings
) -> list[str]:
    """Why what else is in a batch may change a request's bits; empty: in vLLM's batch-invariant
    mode it does not. A layer is refused before it is planned for in that mode. Pure."""
    reasons = find_kernel(INVARIANT_KERNEL).layer_reasons(layer, capability)
    if settings.torch_path is not None:
        reasons.append(f"VLLM_HP1_TORCH_PATH is {settings.torch_path}, whose padding changes "
                       "rounding")
    if not settings.use_cuda:
        reasons.append("VLLM_HP1_USE_CUDA is 0, and Triton's kernels differ by query length")
    return reasons


def norm_rope_reasons(
    layer: LayerShape, capability: tuple[int, int] | None, settings: Settings
) -> list[str]:
    """Why the model itself does DyHT and RoPE of queries and keys, and vLLM their way into the
    cache; empty: attention's kernels do all that, whatever the step. Pure, as `plan` is."""
    if settings.torch_path is not None:
        return [f"VLLM_HP1_TORCH_PATH is {settings.torch_path}"]
    if not settings.use_cuda:
        return ["VLLM_HP1_USE_CUDA is 0"]
    return find_kernel(DECODE_PAGED).layer_reasons(layer, capability)


def describe_norm_rope(reasons: list[str]) -> str:
    """A line that says who does DyHT and RoPE of queries and keys, given why the model does."""
    doer = f"by the model ({'; '.join(reasons)})" if reasons else "with the attention"
    return f"DyHT and RoPE of queries and keys: {doer}"


@dataclasses.dataclass(frozen=True)
class _Choice:
    """The first kernel that can serve, and what those before it were passed over for."""

    kernel: str | None
    passed_over: tuple[str, ...]


def _choose(
    names: tuple[str, ...], layer: LayerShape, capability: tuple[int, int] | None
) -> _Choice:
    passed_over = []
    for name in names:
        reasons = find_kernel(name).layer_reasons(layer, capability)
        if not reasons:
            return _Choice(name, tuple(passed_over))
        passed_over.append(f"not {name}: {', '.join(reasons)}")
    return _Choice(None, tuple(passed_over))


def _allowed(names: tuple[str, ...], settings: Settings) -> tuple[str, ...]:
    """Those of `names` that the settings do not turn off."""
    return tuple(name for name in names
                 if (settings.use_cuda or not name.startswith("hp1_"))
                 and (settings.prefill_wgmma or name not in _WGMMA_KERNELS))
