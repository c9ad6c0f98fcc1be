"""What a training run leaves beside its checkpoint: run.json and a plot of the loss."""

import json
import platform
import subprocess
from pathlib import Path

import matplotlib
import torch
import transformers

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend is chosen first)

RECORD_FILE = "run.json"
PLOT_FILE = "loss.png"


def machine(device: torch.device) -> dict[str, str]:
    """The card, its driver, and the versions that took part."""
    facts = dict(
        python=platform.python_version(),
        torch=torch.__version__,
        transformers=transformers.__version__,
    )
    if device.type == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        shown = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        card, driver = shown.splitlines()[0].split(", ")
        facts |= dict(card=card, driver=driver, cuda=str(torch.version.cuda))
    else:
        facts |= dict(card="none, CPU")
    return facts


def write(directory: Path, record: dict) -> None:
    """Writes run.json and, once there is a curve, loss.png."""
    (directory / RECORD_FILE).write_text(json.dumps(record, indent=1) + "\n")
    if record["curve"]:
        _plot(record, directory / PLOT_FILE)


def _plot(record: dict, path: Path) -> None:
    curve, evaluations = record["curve"], record["evaluations"]
    figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for kind in ("single", "packed"):
        points = [point for point in curve if kind in point]
        steps, losses = [p["step"] for p in points], [p[kind] for p in points]
        axis.plot(steps, losses, label=f"loss, {kind} rows", linewidth=1)
    axis.set(xlabel="step", ylabel="loss on the answers (nats a byte)", yscale="log")
    right = axis.twinx()
    for shots, style in (("0", "ko-"), ("8", "ks--")):
        steps, scores = [e["step"] for e in evaluations], [e[shots] for e in evaluations]
        right.plot(steps, scores, style, label=f"exact match, {shots} shots", markersize=4)
    right.set(ylabel="held-out exact match", ylim=(0, 1.02))
    figure.legend(loc="outside upper center", ncols=4, fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
