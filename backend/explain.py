"""Prints what would serve a step's attention, and why.

The settings (VLLM_HP1_*) are those of the environment. No GPU is needed: --capability says what
card is meant.
"""

import os

import torch
from absl import app, flags
from rich.console import Console
from rich.table import Table

from asynct_kernels.attention import LayerShape, find_kernel
from asynct_vllm.plan import (
    DECODE_KERNELS,
    PREFILL_KERNELS,
    StepShape,
    describe_norm_rope,
    norm_rope_reasons,
    plan,
)
from asynct_vllm.settings import Settings

_DECODES = flags.DEFINE_integer("decodes", 32, "Requests of one query token.", lower_bound=0)
_PREFILLS = flags.DEFINE_integer("prefills", 0, "Requests of more.", lower_bound=0)
_FRESH = flags.DEFINE_bool("fresh", False, "Whether no prefill has earlier keys.")
_QUERY_LEN = flags.DEFINE_integer("query_len", 512, "Query tokens of a prefill.", lower_bound=2)
_SEQ_LEN = flags.DEFINE_integer("seq_len", 2048, "Keys of the longest request.", lower_bound=1)
_CAPABILITY = flags.DEFINE_string(
    "capability", "9.0", "The card's compute capability, as 9.0; none for a machine without one.")
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float16", "float32"], "Of the model.")
_HEADS = flags.DEFINE_integer("heads", 16, "Query heads.", lower_bound=1)
_KV_HEADS = flags.DEFINE_integer("kv_heads", 8, "Key and value heads.", lower_bound=1)
_HEAD_SIZE = flags.DEFINE_integer("head_size", 128, "Values in a head.", lower_bound=1)
_BLOCK_SIZE = flags.DEFINE_integer("block_size", 16, "Tokens in a cache block.", lower_bound=16)
_WINDOW = flags.DEFINE_integer("window", 3, "Keys of the gate's average.", lower_bound=1)


def parse_capability(text: str) -> tuple[int, int] | None:
    """Raises UsageError unless `text` is MAJOR.MINOR or none."""
    if text == "none":
        return None
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise app.UsageError(f"--capability={text!r}: must be as 9.0, or none")
    return int(major), int(minor)


def kernels_table(layer: LayerShape, capability: tuple[int, int] | None) -> Table:
    """What each kernel can do with the layer."""
    table = Table("kernel", "of", "serves this layer")
    for part, names in (("decodes", DECODE_KERNELS), ("prefills", PREFILL_KERNELS)):
        for name in names:
            reasons = find_kernel(name).layer_reasons(layer, capability)
            table.add_row(name, part, f"no: {'; '.join(reasons)}" if reasons else "yes")
    return table


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    if _HEADS.value % _KV_HEADS.value:
        raise app.UsageError(f"--heads={_HEADS.value}: must be a multiple of --kv_heads, "
                             f"{_KV_HEADS.value}")
    capability = parse_capability(_CAPABILITY.value)
    layer = LayerShape(
        dtype=getattr(torch, _DTYPE.value), head_dim=_HEAD_SIZE.value,
        group=_HEADS.value // _KV_HEADS.value, block_size=_BLOCK_SIZE.value,
        window=_WINDOW.value, float8_cache=False)
    shape = StepShape(
        num_decodes=_DECODES.value, num_prefills=_PREFILLS.value, fresh=_FRESH.value,
        num_tokens=_DECODES.value + _PREFILLS.value * _QUERY_LEN.value,
        max_query_len=_QUERY_LEN.value if _PREFILLS.value else 1, max_seq_len=_SEQ_LEN.value)
    console = Console()
    console.print(kernels_table(layer, capability))
    settings = Settings.from_environment(os.environ)
    console.print(describe_norm_rope(norm_rope_reasons(layer, capability, settings)),
                  highlight=False)
    console.print(str(plan(shape, layer, capability, settings)), highlight=False)


if __name__ == "__main__":
    app.run(main)
