"""Calls that the layers of a step share: checked once, launched by each."""

import torch

from asynct_kernels import checks
from asynct_kernels.attention import library
from asynct_kernels.attention.cache import CacheWrite
from asynct_kernels.attention.kernel import AttentionKernel
from asynct_kernels.attention.norm_rope import NormRopeCache, new_outputs
from asynct_kernels.attention.problem import AttentionProblem, FreshKeyValue
from asynct_kernels.gate import GateParams
from asynct_kernels.qk_norm_rope import QkNormRope
from asynct_kernels.qk_norm_rope import QkNormRope


class PreparedCall:
    """What `asynct_kernels.prepare` returns.

    Everything is checked for the first layer, and again for a layer whose tensors differ from those
    of all before in anything but their contents and their place. Layers share one workspace, so
    they are launched on one stream.
    """

    def __init__(
        self, kernel: AttentionKernel, workspace: torch.Tensor | None, **step: object
    ) -> None:
        """`step`: what AttentionProblem is told, the layer's part aside."""
        self._kernel = kernel
        self._workspace = workspace
        self._step = step
        self._workspaces: dict[object, torch.Tensor] = {}  # by the form of the layers they serve

    def launch(
        self,
        query: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        gate: GateParams,
        *,
        out: torch.Tensor,
        k_scale: torch.Tensor | None = None,
        v_scale: torch.Tensor | None = None,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        slot_mapping: torch.Tensor | None = None,
        qk_norm_rope: QkNormRope | None = None,
    ) -> None:
        """Enqueues one layer's attention; arguments and errors as of `asynct_kernels.attend`, but
        that the gate's sigma, alpha and gamma, and scales, are tensors."""
        fresh = None
        if key is not None:
            fresh = FreshKeyValue(key=key, value=value, slot_mapping=slot_mapping,
                                  norm_rope=qk_norm_rope)
        problem = AttentionProblem(
            query=query, k_cache=k_cache, v_cache=v_cache, gate=gate, k_scale=k_scale,
            v_scale=v_scale, fresh=fresh, **self._step)
        alignment = self._kernel.limits.alignment
        form = (_gate_form(gate), _norm_rope_form(qk_norm_rope), *(_form(x, alignment) for x in (
            query, k_cache, v_cache, out, k_scale, v_scale, key, value, slot_mapping)))
        workspace = self._workspaces.get(form)
        if workspace is None:
            workspace = self._workspaces[form] = self._checked(problem, out)
        library.launch(self._kernel, problem, out, workspace)

    def _checked(self, problem: AttentionProblem, out: torch.Tensor) -> torch.Tensor:
        problem.check()
        checks.tensor("out", out)
        return library.checked_workspace(self._kernel, problem, out, self._workspace)


class PreparedNormRope:
    """`asynct_kernels.qk_norm_rope_cache` of a step, checked as PreparedCall checks."""

    def __init__(self, positions: torch.Tensor, slot_mapping: torch.Tensor) -> None:
        """Both are read by every launch, so that they must live, and keep their place."""
        self._positions = positions
        self._slot_mapping = slot_mapping
        self._checked: set[object] = set()  # forms of layers

    def launch(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        norm_rope: QkNormRope,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        *,
        k_scale: torch.Tensor | None = None,
        v_scale: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns q' and k' of one layer; arguments and errors as of qk_norm_rope_cache."""
        form = (_norm_rope_form(norm_rope), *map(_form, (
            query, key, value, k_cache, v_cache, k_scale, v_scale)))
        new = form not in self._checked
        if new:
            checks.tensors(query=query, key=key, value=value, k_cache=k_cache, v_cache=v_cache)
        asked = NormRopeCache(
            new_outputs(query, key), query, self._positions, norm_rope,
            CacheWrite(key, value, k_cache, v_cache, self._slot_mapping, k_scale, v_scale))
        if new:
            asked.check()
            self._checked.add(form)
        asked.run()
        return asked.out


def _form(x: object, alignment: int = 1) -> object:
    """All that a check of `x` may look at."""
    if not isinstance(x, torch.Tensor):
        return type(x)
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % alignment


def _gate_form(gate: object) -> object:
    if not isinstance(gate, GateParams):
        return type(gate)
    return gate.window, *map(_form, (gate.sigma, gate.alpha, gate.gamma))


def _norm_rope_form(norm_rope: object) -> object:
    return _form(norm_rope.cos_sin) if isinstance(norm_rope, QkNormRope) else type(norm_rope)
