"""Time and memory of a decode step over long contexts whose keys are shared among cards.

One layer with one KV head and one request, captured in a graph with what the cards exchange, from a
cold L2; beside it vLLM's FlashAttention-3 with the same keys. No time is given unless both are
right. Run it with as many cards as `--ranks` names.
"""

import multiprocessing
import os
import tempfile

from absl import app, flags
from harness import write_json
from machine import describe_run
from rich.console import Console
from rich.table import Table

_RANKS = flags.DEFINE_integer("ranks", 1, "Cards that share the keys.", lower_bound=1)
_CONTEXTS = flags.DEFINE_list("contexts", ["131072", "1048576"], "Keys of the request.")
_HEADS = flags.DEFINE_list("heads", ["2", "8"], "Query heads of all ranks on the one KV head.")
_HEAD_DIM = flags.DEFINE_integer("head_dim", 128, "Values in a head.", lower_bound=1)
_BLOCK_SIZE = flags.DEFINE_integer("block_size", 512, "Keys of a rank in a block.", lower_bound=16)
_INTERLEAVE = flags.DEFINE_integer("interleave", 64, "Neighbouring keys of a rank.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer("rounds", 25, "Replays of each side.", lower_bound=2)
_TOLERANCE = flags.DEFINE_float(
    "tolerance", 0.02, "Largest error against float64, of the output's 2-norm, in bfloat16.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the tokens.")
_COMMIT = flags.DEFINE_string("commit", "", "What is measured; asked of git if left out.")
_OUTPUT = flags.DEFINE_string("output", "context_parallel.json", "Where the JSON goes.")


def _run(ranks: int, rank: int, store: str, settings: dict, results) -> None:
    try:
        from context_parallel_rank import measure  # takes seconds, of all ranks at once

        results.put((rank, measure(ranks, rank, store, settings)))
    except BaseException as error:
        results.put((rank, repr(error)))
        raise


def table(rows: list[dict], title: str) -> Table:
    """The rows for a person."""
    result = Table(title=title)
    for column in ("context", "heads", "side", "step, us", "MiB a card and layer", "error"):
        result.add_column(column, justify="left" if column == "side" else "right")
    for row in rows:
        result.add_row(
            str(row["context"]), str(row["heads"]), row["side"], f"{row['step_us']:.1f}",
            f"{row['cache_bytes'] / 2**20:.1f}", f"{row['error']:.0e}")
    return result


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    ranks = _RANKS.value
    settings = dict(
        contexts=[int(context) for context in _CONTEXTS.value],
        heads=[int(heads) for heads in _HEADS.value], head_dim=_HEAD_DIM.value,
        block_size=_BLOCK_SIZE.value, interleave=_INTERLEAVE.value, rounds=_ROUNDS.value,
        tolerance=_TOLERANCE.value, seed=_SEED.value)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        processes = [context.Process(target=_run, args=(ranks, rank, store, settings, results))
                     for rank in range(ranks)]
        for process in processes:
            process.start()
        found = dict(results.get() for _ in processes)
        for process in processes:
            process.join(10)
            process.terminate()
    if broken := {rank: rows for rank, rows in found.items() if isinstance(rows, str)}:
        raise SystemExit(f"no times: {broken}")
    # A step takes as long as its slowest rank.
    rows = [{**same[0], "step_us": max(row["step_us"] for row in same),
             "error": max(row["error"] for row in same)} for same in zip(*found.values())]
    Console().print(table(rows, f"{ranks} ranks"))
    report = {**describe_run(_COMMIT.value), "ranks": ranks, "settings": settings, "rows": rows}
    print(f"wrote {write_json(_OUTPUT.value, report)}")


if __name__ == "__main__":
    app.run(main)
