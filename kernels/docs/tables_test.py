"""The tables in the documents are what the result files give."""

import documents
import pytest
import tables


def read(name: str) -> str:
    return (tables.KERNELS / "docs" / name).read_text()


@pytest.mark.parametrize("name", tables.DOCUMENTS)
def test_a_document_is_up_to_date(name):
    text = read(name)
    assert documents.fill(text, tables.TABLES) == text, (
        f"run //kernels/docs:tables: {name} is behind the results")


def test_every_table_stands_in_a_document():
    standing = {name for document in tables.DOCUMENTS for name in documents.names(read(document))}
    assert standing == set(tables.TABLES)


def test_a_changed_figure_is_found():
    text = read("bounds.md")
    start = text.index("| ", text.index("<!-- table norms -->"))
    changed = text[:start] + "| 7 " + text[start:]
    assert documents.fill(changed, tables.TABLES) == text


def test_tile_waste_of_one_row_block():
    # 64 queries see 64 * 65 / 2 keys, and one tile of 128 keys is computed.
    assert tables.computed_share(64, 64, 128) == pytest.approx(64 * 128 / 2080)
