"""What Nsight Compute counts of one kernel: the counters that tell what bounds it.

    ./bazelw run //tools/profile:kernel_counters -- --kernel DecodePaged -- python3 run.py

runs the command under `ncu`, which has to be on the PATH, and prints a table of the launches whose
name has --kernel in it. The command should launch the kernel some times before: the first launches
are passed over.
"""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Iterable

from absl import app, flags
from rich.console import Console
from rich.table import Table

_KERNEL = flags.DEFINE_string("kernel", None, "A part of the kernel's name.", required=True)
_SKIP = flags.DEFINE_integer("skip", 3, "Launches of it to pass over.", lower_bound=0)
_LAUNCHES = flags.DEFINE_integer("launches", 1, "Launches to count.", lower_bound=1)

# ncu's name -> what it means.
COUNTERS = {
    "gpu__time_duration.sum": "time",
    "dram__bytes.sum": "DRAM, bytes",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM, of its peak",
    "lts__t_sector_hit_rate.pct": "L2 hits",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "multiprocessors, of their peak",
    "sm__inst_executed_pipe_tensor.sum": "tensor-core instructions",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "cycles that issue",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps, of the most",
    "l1tex__data_bank_conflicts_pipe_lsu.sum": "bank conflicts",
    "launch__registers_per_thread": "registers a thread",
    "launch__occupancy_limit_shared_mem": "blocks by shared memory",
}


def command(ncu: str, arguments: Iterable[str]) -> list[str]:
    """ncu's command line."""
    return [ncu, "--csv", "--target-processes", "all", "--metrics", ",".join(COUNTERS),
            "--kernel-name", f"regex:{_KERNEL.value}", "--launch-skip", str(_SKIP.value),
            "--launch-count", str(_LAUNCHES.value), *arguments]


def parse(output: str) -> dict[str, dict[str, str]]:
    """What ncu printed as CSV, among the command's own lines: launch -> counter -> value, unit.

    Raises:
      ValueError: it counted nothing.
    """
    lines = output.splitlines()
    head = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    launches: dict[str, dict[str, str]] = {}
    table = "" if head is None else "\n".join(line for line in lines[head:] if line[:1] == '"')
    for row in csv.DictReader(io.StringIO(table)):
        launch = launches.setdefault(f"{row['ID']}: {row['Kernel Name']}", {})
        launch[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    if not launches:
        raise ValueError(f"ncu counted nothing. It said:\n{output}")
    return launches


def table(launches: dict[str, dict[str, str]]) -> Table:
    """A row a counter, a column a launch."""
    out = Table("", *launches)
    for counter, meaning in COUNTERS.items():
        out.add_row(meaning, *(launch.get(counter, "-") for launch in launches.values()))
    return out


def main(argv: list[str]) -> None:
    if not argv[1:]:
        raise app.UsageError("give the command that launches the kernel, after --")
    ncu = shutil.which("ncu")
    if ncu is None:
        sys.exit("kernel_counters: ncu is not on the PATH; it comes with CUDA's toolkit")
    done = subprocess.run(command(ncu, argv[1:]), stdout=subprocess.PIPE, text=True)
    try:
        Console().print(table(parse(done.stdout)))
    except ValueError as error:
        sys.exit(f"kernel_counters: {error}")


if __name__ == "__main__":
    app.run(main)
