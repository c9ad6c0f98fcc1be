"""Tables between their markers."""

import documents
import pytest

TEXT = "before\n<!-- table one -->\nstale\n<!-- end one -->\nafter\n"


def test_a_table_is_replaced_and_nothing_else():
    filled = documents.fill(TEXT, {"one": lambda: "fresh"})
    assert filled == TEXT.replace("stale", "fresh")
    assert documents.fill(filled, {"one": lambda: "fresh"}) == filled


def test_an_empty_place_is_filled():
    assert "fresh" in documents.fill(TEXT.replace("stale\n", ""), {"one": lambda: "fresh"})


def test_an_unknown_table_is_named():
    with pytest.raises(KeyError, match="one"):
        documents.fill(TEXT, {})


def test_names():
    assert documents.names(TEXT) == ["one"]


def test_figures_are_aligned_right():
    assert documents.markdown(["name", "us"], [["a", 1.5]]) == (
        "| name | us |\n| --- | ---: |\n| a | 1.5 |")


def test_files_are_written(tmp_path):
    path = tmp_path / "document.md"
    path.write_text(TEXT)
    documents.write([path], {"one": lambda: "fresh"})
    assert "fresh" in path.read_text()
