"""The locks are what lock.py would make of the requirements: whoever edits one must run it."""

import pathlib
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = pathlib.Path("third_party/python")
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+).*\\\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)")


def requirements(name: str) -> list[Requirement]:
    lines = (FOLDER / "requirements" / f"{name}.in").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins(environment: str) -> dict[str, set[str]]:
    """Name -> the versions it is pinned to (of which markers choose one)."""
    found: dict[str, set[str]] = {}
    for name, version, _ in PIN.findall((FOLDER / f"{environment}.lock").read_text()):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


@pytest.mark.parametrize("environment", ["cpu", "cuda"])
def test_every_requirement_is_pinned_to_a_version_it_allows(environment):
    pinned = pins(environment)
    for requirement in requirements("common") + requirements(environment):
        versions = pinned.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement} is not in {environment}.lock"
        assert all(requirement.specifier.contains(version) for version in versions), \
            f"{environment}.lock has {versions} for {requirement}"


@pytest.mark.parametrize("environment", ["cpu", "cuda"])
def test_every_package_has_hashes(environment):
    text = (FOLDER / f"{environment}.lock").read_text()
    assert len(PIN.findall(text)) == len(re.findall(r"^[^\s#]", text, re.MULTILINE))


def test_both_environments_have_the_same_torch():
    for requirement in requirements("overrides"):
        if requirement.marker is None:
            assert pins("cpu")[requirement.name] == pins("cuda")[requirement.name]
