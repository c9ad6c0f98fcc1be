"""Prints a training run's record (run.json) as the Markdown tables of the README."""

import json
from pathlib import Path

from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("record", None, "The run.json of a training run.", required=True)


def markdown(record: dict) -> str:
    """The run in one paragraph, its held-out exact match, and the zeros of every layer."""
    machine, arguments, final = record["machine"], record["arguments"], record["final"]
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("driver", "cuda", "torch", "transformers", "python")
    )
    lines = [
        f"{record['parameters']:,} parameters, {record['steps']:,} steps on "
        f"{arguments['problems']:,} problems, seed {arguments['seed']}; {record['seconds']:.0f} s "
        f"from start to last evaluation on one {machine['card']} ({versions}).",
        "",
        f"| shots | exact match on {final['problems']} held-out problems |",
        "| --- | --- |",
        *(f"| {shots} | {final[shots]:.1%} |" for shots in ("0", "8")),
        "",
        "| layer | attention weights that are 0 | MLP units that are 0 |",
        "| --- | --- | --- |",
        *(
            f"| {index} | {layer['attention']:.1%} | {layer['mlp']:.1%} |"
            for index, layer in enumerate(record["sparsity"])
        ),
    ]
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    print(markdown(json.loads(Path(FLAGS.record).read_text())))


if __name__ == "__main__":
    app.run(main)
