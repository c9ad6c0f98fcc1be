"""Prints 'N passed, N failed, N skipped' for the output of `bazel test` on standard input.

usage: bazel test ... 2>&1 | python3 count_tests.py --testlogs .bazel/testlogs

Bazel counts targets; a target of pytest holds many cases, and its test.xml names them. A target
with no XML of its own (a C++ test, one that did not build or was stopped) is one case. Exits 1 if
it finds no test at all: then a green build would prove nothing.
"""

import argparse
import collections
import glob
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

_RESULT = re.compile(
    r"^//(?P<package>[^\s:]*):(?P<name>\S+)\s+(?:\(cached\) )?"
    r"(?P<status>PASSED|FLAKY|FAILED TO BUILD|FAILED|TIMEOUT|INCOMPLETE|NO STATUS|SKIPPED)\b")
_NOT_ANALYZED = re.compile(
    r"^WARNING: errors encountered while analyzing target '//(?P<package>[^:]*):(?P<name>[^']+)'")
_WHOLE_TARGET = {"PASSED": "passed", "FLAKY": "passed", "SKIPPED": "skipped"}


def count_cases(paths: list[str]) -> collections.Counter:
    """The cases of some test.xml files by their outcome."""
    cases: collections.Counter = collections.Counter()
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            tags = {child.tag for child in case}
            if tags & {"failure", "error"}:
                cases["failed"] += 1
            elif "skipped" in tags:
                cases["skipped"] += 1
            else:
                cases["passed"] += 1
    return cases


def count(output: str, testlogs: pathlib.Path) -> collections.Counter:
    """Counts the cases of all targets that `output` reports on."""
    total: collections.Counter = collections.Counter()
    # A target is reported once, at the end; a failing one may also be on a line before.
    targets = {}
    for line in output.splitlines():
        if match := _RESULT.match(line):
            targets[match["package"], match["name"]] = match["status"]
        elif match := _NOT_ANALYZED.match(line):
            targets[match["package"], match["name"]] = "FAILED TO BUILD"
    for (package, name), status in targets.items():
        outcome = _WHOLE_TARGET.get(status, "failed")
        folder = testlogs / package / name
        cases: collections.Counter = collections.Counter()
        if status in ("PASSED", "FLAKY", "FAILED"):  # only these have written all of their XML
            cases = count_cases(glob.glob(f"{folder}/test.xml") +
                                glob.glob(f"{folder}/shard_*/test.xml"))
        # A target that failed has a failure, be it after its last case.
        if not cases[outcome] and not (outcome == "passed" and cases["skipped"]):
            cases[outcome] += 1
        total += cases
    return total


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--testlogs", required=True, type=pathlib.Path,
                        help="where Bazel put the tests' XML files")
    arguments = parser.parse_args(argv)
    total = count(sys.stdin.read(), arguments.testlogs)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 0 if total.total() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
