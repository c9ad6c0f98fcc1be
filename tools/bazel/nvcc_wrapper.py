"""Runs nvcc, keeps ptxas's report, and fails on what it must not say.

usage: nvcc_wrapper.py --report FILE -- NVCC ARGUMENT ...

nvcc is called with -Xptxas=-v. Spilled registers and the advisories C7500 to C7599 (wgmma
serialised, setmaxnreg ignored) compile silently otherwise, and cost more than most bugs.
"""

import argparse
import re
import shutil
import subprocess
import sys

_FUNCTION = re.compile(r"Function properties for (\S+)")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_ADVISORY = re.compile(r"\(C75\d\d\)")


def complaints(report: str) -> list[str]:
    """What in a ptxas report must not be: one sentence per spilling kernel or advisory."""
    found = []
    function = "an unnamed function"
    for line in report.splitlines():
        if match := _FUNCTION.search(line):
            function = match.group(1)
        elif (match := _SPILL.search(line)) and (match.group(2), match.group(3)) != ("0", "0"):
            found.append(f"{function} spills registers: {match.group(2)} bytes of stores, "
                         f"{match.group(3)} bytes of loads, {match.group(1)} bytes of stack")
        elif _ADVISORY.search(line):
            found.append(line.strip())
    return found


def without_statistics(output: str) -> str:
    """nvcc's output less what -Xptxas=-v adds to it: the compiler's own warnings and errors."""
    statistics = re.compile(r"ptxas info|\s+\d+ bytes stack frame|\s*$")
    return "".join(line for line in output.splitlines(keepends=True)
                   if not statistics.match(line))


def demangle(text: str) -> str:
    if shutil.which("c++filt") is None:
        return text
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True,
                          check=True).stdout


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--report", required=True)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args(argv)
    nvcc = subprocess.run(arguments.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    with open(arguments.report, "w") as report:
        report.write(demangle(nvcc.stdout))
    sys.stderr.write(without_statistics(nvcc.stdout))
    if nvcc.returncode:
        return nvcc.returncode
    if found := complaints(nvcc.stdout):
        sys.stderr.write(demangle("".join(f"error: {complaint}\n" for complaint in found)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
