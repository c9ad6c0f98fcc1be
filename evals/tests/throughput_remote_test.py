"""Objects in other processes: calls, errors, and the end."""

import os
import pathlib

import pytest
from asynct_evals.throughput.remote import call_apart, remote


def test_calls_reach_one_object_elsewhere():
    with remote(list, [1]) as numbers:
        numbers.call("append", 2)
        assert numbers.call("__len__") == 2
        with pytest.raises(ValueError, match="3"):
            numbers.call("index", 3)
        assert numbers.call("pop") == 2


def test_an_error_of_building_comes_back():
    with pytest.raises(FileNotFoundError), remote(open, "/nowhere/at/all") as file:
        file.wait()


def test_objects_are_built_at_once(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)  # opening it for reading returns only when it is opened for writing, and back
    with remote(open, fifo) as reader, remote(open, fifo, "w") as writer:
        reader.wait()
        writer.call("write", "met")
        writer.call("close")
        assert reader.call("read") == "met"


def test_the_object_is_closed_when_the_block_ends(tmp_path):
    with remote(open, tmp_path / "file", "w") as file:
        file.call("write", "kept")
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(RuntimeError), remote(open, tmp_path / "file", "w") as file:
        file.call("write", "kept as well")
        raise RuntimeError
    assert (tmp_path / "file").read_text() == "kept as well"


def test_a_function_is_called_apart():
    assert call_apart(os.getpid) != os.getpid()
    assert call_apart(pathlib.Path, "a", "b") == pathlib.Path("a/b")
