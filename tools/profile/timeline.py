"""A picture of what the GPU did in one step of an engine."""

import pathlib

from gpu_trace import Step
from kernel_kinds import KINDS, kind_of


def rows(step: Step) -> dict[str, list[tuple[float, float]]]:
    """The step's work as (start, duration) in microseconds from its first kernel, by kind."""
    found = {kind: [(work.start - step.start, work.end - work.start) for work in step.work
                    if kind_of(work.name) == kind] for kind in KINDS}
    return {kind: bars for kind, bars in found.items() if bars}


def draw(step: Step, title: str, path: pathlib.Path) -> None:
    """Writes the timeline, a line for each kind of kernel, as an image."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = rows(step)
    figure, axes = pyplot.subplots(figsize=(14, 1.5 + 0.4 * len(lines)), layout="constrained")
    for height, (kind, bars) in enumerate(lines.items()):
        axes.broken_barh(bars, (height - 0.4, 0.8), color=f"C{KINDS.index(kind) % 10}")
    axes.set_yticks(range(len(lines)), list(lines))
    axes.invert_yaxis()
    axes.set_xlabel("us from the step's first kernel")
    axes.set_title(title, fontsize="medium")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
