"""The table of features.md: up to date, of tests that are there, and of all that show a feature."""

import documents
import features


def test_the_document_is_up_to_date():
    text = features.DOCUMENT.read_text()
    assert documents.names(text) == list(features.TABLES)
    assert documents.fill(text, features.TABLES) == text, "run //model/features"


def test_every_feature_test_is_named():
    named = {test for feature in features.FEATURES for test in feature.tests}
    for path in features.FEATURE_TESTS:
        assert {f"{path}::{name}" for name in features.tests_in(path)} <= named
