"""Some of the ways in which stores fail in `nox -s faults`, in the middle of a run; others are in tests/cli/test_store_fails.py."""

import pytest

from tests.faults.failing import FROM_THE_START, come_back, fail_elsewhere, fail_for_space, killed_while_away, may_mount
from tests.faults.s3 import ENVIRONMENT, VARIABLE, server_command

pytestmark = pytest.mark.slow
needs_server = pytest.mark.skipif(server_command() is None, reason=f"no S3 server: {VARIABLE} names its command")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@needs_server
def test_an_object_store_that_refuses_from_one_moment_on() -> None:
    found = fail_elsewhere(("refuses",), (2,))
    assert found.wrong == []
    assert found.counts["kept aside"] == 1 and found.counts["rows"] == 9


@needs_server
@pytest.mark.parametrize(("after", "count"), [(FROM_THE_START, "refused before measuring"), (2, "kept aside")])
def test_credentials_that_are_wrong_or_expire(after: int, count: str) -> None:
    found = fail_elsewhere(("denies",), (after,))
    assert found.wrong == [] and found.counts[count] == 1


@needs_server
def test_an_object_store_that_is_away_for_some_seconds_has_everything_at_the_end() -> None:
    found = come_back(3.0)
    assert found.wrong == [] and found.counts["rows"] == 9


@needs_server
def test_a_run_that_is_killed_while_its_store_is_away() -> None:
    found = killed_while_away()
    assert found.wrong == [] and found.counts["rows"] >= 6


@pytest.mark.skipif(not may_mount(), reason="making a file system takes rights of an administrator")
def test_a_disk_that_is_full() -> None:
    found = fail_for_space((0.6,))
    assert found.wrong == [] and found.counts["kept aside"] == 1 and found.counts["rows"] == 9
