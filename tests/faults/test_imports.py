"""A few of the files that `nox -s faults` imports by the thousand."""

import pytest

from tests.faults.imports import import_fuzzed


@pytest.mark.slow
def test_files_with_anything_in_any_place() -> None:
    found = import_fuzzed(60, shown_each=20)
    assert found.counts["files"] >= 50 and found.counts["imported"] and found.counts["not imported"]
