"""The plugin, seen from the outside: pytest runs small test files that use it."""

import pytest

pytest_plugins = ["pytester"]


def test_trivial(seed):
    assert isinstance(seed, int)
