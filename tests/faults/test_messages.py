"""Some of the messages and killed imports that `nox -s faults` makes by the thousand."""

from tests.faults.kill_imports import kill_imports
from tests.faults.messages import tell


def test_no_message_of_a_worker_is_executed_waited_for_or_a_traceback() -> None:
    found = tell(300)
    assert found.wrong == []
    assert found.counts["messages"] == 300 and found.counts["refused in a sentence"] > 100


def test_an_import_that_is_killed_before_a_line() -> None:
    found = kill_imports(8)
    assert found.wrong == [] and found.counts["killed"] >= 5
