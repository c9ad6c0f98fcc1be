"""The tables in backend.md are what the settings and the result files give."""

import documents
import tables


def test_the_document_is_up_to_date():
    text = tables.DOCUMENT.read_text()
    assert documents.fill(text, tables.TABLES) == text, "run //backend/docs:tables"


def test_every_table_stands_in_it():
    assert documents.names(tables.DOCUMENT.read_text()) == list(tables.TABLES)
