"""Converts an AsyncT checkpoint of Megatron-Core to Hugging Face's layout, or back.

To Hugging Face (what vLLM and transformers load):

    convert_megatron --input=MEGATRON_DIR --output=DIR

and to Megatron, to go on training:

    convert_megatron --to=megatron --input=DIR --output=MEGATRON_DIR --tensor_parallel=4
"""

from absl import app, flags
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from user_path import user_path

from asynct_model import AsyncTConfig
from asynct_model.megatron.convert import FORMATS, Summary, to_huggingface, to_megatron

_INPUT = flags.DEFINE_string("input", None, "Checkpoint to convert: a directory.", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "New directory for the result.", required=True)
_TO = flags.DEFINE_enum("to", "huggingface", ["huggingface", "megatron"], "What to convert to.")
_CONFIG = flags.DEFINE_string(
    "config",
    None,
    "config.json, or its directory, of the model to convert to Hugging Face's layout; by default "
    "it is made of the arguments that Megatron keeps in a checkpoint.",
)
_FORMAT = flags.DEFINE_enum(
    "ckpt_format", FORMATS[0], FORMATS, "Megatron's format to write; both are read as they come."
)
_TENSOR_PARALLEL = flags.DEFINE_integer(
    "tensor_parallel", 1, "Tensor-parallel ranks to write for Megatron.", lower_bound=1
)


def convert(progress: Progress) -> Summary:
    """Runs the conversion that the flags describe."""
    task = progress.add_task(f"to {_TO.value}", total=None)

    def advance(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total)

    source, output = user_path(_INPUT.value), user_path(_OUTPUT.value)
    if _TO.value == "megatron":
        return to_megatron(source, output, _FORMAT.value, _TENSOR_PARALLEL.value, advance)
    config = AsyncTConfig.from_pretrained(user_path(_CONFIG.value)) if _CONFIG.value else None
    return to_huggingface(source, output, config, advance)


def summary_table(summary: Summary) -> Table:
    """What was converted."""
    config = summary.config
    table = Table("what", "value", title=_OUTPUT.value)
    table.add_row("layers", str(config.num_hidden_layers))
    table.add_row("hidden, intermediate", f"{config.hidden_size}, {config.intermediate_size}")
    table.add_row(
        "heads, key-value heads, size",
        f"{config.num_attention_heads}, {config.num_key_value_heads}, {config.head_dim}",
    )
    table.add_row("vocabulary", f"{config.vocab_size} ({summary.padding} rows of padding)")
    table.add_row("embeddings", "tied" if config.tie_word_embeddings else "untied")
    table.add_row("Hugging Face tensors", f"{summary.tensors} ({summary.bytes / 1e6:,.1f} MB)")
    return table


def check_flags() -> None:
    """Raises UsageError for a flag that has no meaning here, or names no file."""
    to_megatron_only = ("ckpt_format", "tensor_parallel")
    other = to_megatron_only if _TO.value == "huggingface" else ("config",)
    for name in other:
        if flags.FLAGS[name].present:
            raise app.UsageError(f"--{name} has no meaning with --to={_TO.value}")
    if _CONFIG.value and not user_path(_CONFIG.value).exists():
        raise app.UsageError(f"--config={_CONFIG.value}: there is no such file or directory")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    check_flags()
    console = Console()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
            summary = convert(progress)
    except (ValueError, TypeError, OSError) as error:
        raise SystemExit(f"not converted: {error}") from error
    for note in summary.notes:
        console.print(f"Note: {note}", highlight=False)
    console.print(summary_table(summary))


if __name__ == "__main__":
    app.run(main)
