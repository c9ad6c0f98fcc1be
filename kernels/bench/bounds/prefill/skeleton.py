"""The compiled skeleton as seen from Python: its variants, its inputs and its launch."""

import ctypes
import dataclasses

import torch

HEAD_DIM = 128
PAGE = 16
SLACK_ROWS = 128  # contiguous K/V boxes of the last request may reach this far past its end


class _Problem(ctypes.Structure):
    """Mirrors `Problem` in prefill.cu."""

    _fields_ = (
        [(name, ctypes.c_void_p) for name in
         "query key value out block_table sigma alpha gamma counters".split()]
        + [("page_stride", ctypes.c_int64), ("scale", ctypes.c_float)]
        + [(name, ctypes.c_int) for name in
           "batch length heads kv_heads rows pages table_width blocks".split()]
    )


@dataclasses.dataclass(frozen=True)
class Variant:
    index: int
    name: str
    paged: bool
    gated: bool


@dataclasses.dataclass
class Inputs:
    """One causal prefill: `batch` requests of `length` tokens, no cached prefix.

    query [batch * length, heads, 128]; key, value [batch * length + slack, kv_heads, 128]; the
    cache [pages, 2, 16, kv_heads, 128] holds the same keys and values in shuffled pages; sigma,
    alpha and gamma [heads] float32.
    """

    batch: int
    length: int
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    cache: torch.Tensor
    block_table: torch.Tensor
    sigma: torch.Tensor
    alpha: torch.Tensor
    gamma: torch.Tensor
    scale: float = 1.0 / HEAD_DIM

    @property
    def heads(self) -> int:
        return self.query.shape[1]

    @property
    def kv_heads(self) -> int:
        return self.key.shape[1]

    def multiply_adds(self) -> int:
        """Floating-point operations of both products, causal half only."""
        pairs = self.length * (self.length + 1) // 2
        return 2 * 2 * HEAD_DIM * pairs * self.heads * self.batch


def make_inputs(batch: int, length: int, heads: int, kv_heads: int, *, query=None, key=None,
                value=None, sigma=1.1, alpha=8.0, gamma=1.0) -> Inputs:
    """Random inputs whose gate closes on about 70% of the scores; any tensor may be given instead.

    Unused pages are NaN and table entries past a request's end are huge.
    """
    device = torch.device("cuda")
    tokens = batch * length

    def random(rows: int, count: int) -> torch.Tensor:
        return torch.randn(rows, count, HEAD_DIM, device=device).to(torch.bfloat16)

    query = random(tokens, heads) if query is None else query
    key = random(tokens + SLACK_ROWS, kv_heads) if key is None else key
    value = random(tokens + SLACK_ROWS, kv_heads) if value is None else value

    pages = (length + PAGE - 1) // PAGE
    total = batch * pages + 3
    cache = torch.full((total, 2, PAGE, kv_heads, HEAD_DIM), float("nan"), device=device,
                       dtype=torch.bfloat16)
    table = torch.full((batch, pages + 5), 1 << 30, device=device, dtype=torch.int32)
    table[:, :pages] = torch.randperm(total, device=device)[: batch * pages].view(batch, pages)
    for side, rows in enumerate((key, value)):
        padded = torch.zeros(batch, pages * PAGE, kv_heads, HEAD_DIM, device=device,
                             dtype=torch.bfloat16)
        padded[:, :length] = rows[:tokens].view(batch, length, kv_heads, HEAD_DIM)
        cache[table[:, :pages].long().flatten(), side] = padded.view(-1, PAGE, kv_heads, HEAD_DIM)

    def per_head(x) -> torch.Tensor:
        return torch.as_tensor(x, device=device, dtype=torch.float32).expand(heads).contiguous()

    return Inputs(batch, length, query, key, value, cache, table, per_head(sigma), per_head(alpha),
                  per_head(gamma))


class Skeleton:
    """The shared library built from prefill.cu."""

    def __init__(self, path: str):
        self._library = ctypes.CDLL(path)
        self._library.prefill_name.restype = ctypes.c_char_p
        self._library.prefill_launch.restype = ctypes.c_char_p
        self._library.prefill_launch.argtypes = [ctypes.c_int, ctypes.POINTER(_Problem),
                                                 ctypes.c_void_p]
        self.variants = [
            Variant(i, self._library.prefill_name(i).decode(),
                    bool(self._library.prefill_is_paged(i)),
                    bool(self._library.prefill_is_gated(i)))
            for i in range(self._library.prefill_instances())
        ]
        self._counters = torch.zeros(2, device="cuda", dtype=torch.int32)
        self._blocks = torch.cuda.get_device_properties(0).multi_processor_count

    def launch(self, variant: Variant, inputs: Inputs, out: torch.Tensor) -> None:
        """Writes the attention of `inputs` to out [batch * length, heads, 128], bf16.

        Raises:
          RuntimeError: the launch was refused.
        """
        key, value = inputs.key, inputs.value
        if variant.paged:
            key, value = inputs.cache[:, 0], inputs.cache[:, 1]
        pointers = (inputs.query, key, value, out, inputs.block_table, inputs.sigma, inputs.alpha,
                    inputs.gamma, self._counters)
        problem = _Problem(*(x.data_ptr() for x in pointers), inputs.cache.stride(0), inputs.scale,
                           inputs.batch, inputs.length, inputs.heads, inputs.kv_heads,
                           inputs.key.shape[0], inputs.cache.shape[0],
                           inputs.block_table.shape[1], self._blocks)
        error = self._library.prefill_launch(variant.index, ctypes.byref(problem),
                                             torch.cuda.current_stream().cuda_stream)
        if error:
            raise RuntimeError(f"{variant.name}: {error.decode()}")
