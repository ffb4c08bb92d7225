"""A comparer opens a store once, however many runs it then compares; the site does with one."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairbench.config import Config
from pairbench.model.record import Series
from pairbench.site.gather import SiteReading
from pairbench.store.documents import read_acceptances, read_calibrations
from pairbench.store.run_index import RunIndex
from pairbench.workflow.comparer import Comparer
from pairbench.workflow.git import Repository
from tests.builders import make_run, run_id_of, write_runs

ONCE = {"index": 1, "repository": 1, "acceptances": 1, "calibrations": 1}


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often what a comparison needs is opened."""
    counts: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return call(*arguments, **options)

        return wrapped

    monkeypatch.setattr(RunIndex, "of_store", staticmethod(counted("index", RunIndex.of_store)))
    room = "pairbench.workflow.comparer"
    monkeypatch.setattr(f"{room}.Repository", counted("repository", Repository))
    monkeypatch.setattr(f"{room}.read_acceptances", counted("acceptances", read_acceptances))
    monkeypatch.setattr(f"{room}.read_calibrations", counted("calibrations", read_calibrations))
    return counts


def test_any_number_of_comparisons_open_a_store_once(tmp_path: Path, opens: Counter[str]) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(4)))
    comparer = Comparer.open(Config(root=tmp_path, store=str(tmp_path)))
    newest = comparer.compare()
    earlier = comparer.compare(current=run_id_of(2))
    assert comparer.compare() == newest != earlier
    assert comparer.accepted_levels({series: record for record in make_run(3) if (series := Series.of(record))}) == {}
    assert opens == ONCE


def test_a_site_with_many_runs_opens_its_store_once(tmp_path: Path, opens: Counter[str]) -> None:
    write_runs(tmp_path, *(make_run(number) for number in range(14)))
    reading = SiteReading(Config(root=tmp_path, store=str(tmp_path)))
    assert len(list(reading.operators())) == 1 and len(list(reading.runs())) == 14
    assert opens == ONCE
