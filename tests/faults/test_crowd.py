"""Some seconds of the crowd that `nox -s faults` lets loose for minutes."""

from pathlib import Path

import pytest

from tests.faults.crowd import crowd
from tests.faults.s3 import ENVIRONMENT, VARIABLE, object_store, server_command, url_of


@pytest.mark.slow
def test_on_this_machine(tmp_path: Path) -> None:
    found = crowd(str(tmp_path / "store"), 4, writers=3, readers=1, dashboards=1, pause_s=0.1)
    assert found.wrong == []
    assert found.counts["runs closed"] >= 3 and found.counts["times read"] and found.counts["sites built"]


@pytest.mark.skipif(server_command() is None, reason=f"no S3 server: {VARIABLE} names its command")
def test_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with object_store(tmp_path / "log") as port:
        found = crowd(url_of(port), 2, writers=2, readers=1, dashboards=0)
    assert found.wrong == []
    assert found.counts["runs closed"] and found.counts["times read"]
