"""How far GPUs of one model differ, on made-up runs."""

from dataclasses import replace

import pytest

from pairbench.analyze.history.trend import Trend, make_trend
from pairbench.model.record import Record, Series
from pairbench.site.summary import gpu_ratios, spreads
from tests.builders import CASES, DEVICE, SUITE, make_run

SERIES = Series(device_name=DEVICE, suite=SUITE, case=CASES[0], implementation="fused", mode="eager")


def trend(*runs: tuple[str | None, float, str]) -> Trend:
    """Return the trend of runs, each on a GPU, so much slower, of some source."""
    records: list[Record] = []
    for number, (gpu, slower, source) in enumerate(runs):
        made = make_run(number, cases=CASES[:1], slower={"fused": slower}, cv=0.0)
        records += [replace(record, device_uuid=gpu, implementation_hash=source) for record in made]
    return make_trend(records, SERIES)


def test_gpus_are_set_beside_the_median_one() -> None:
    found = gpu_ratios(trend(("A", 1.0, "s"), ("B", 1.03, "s"), ("C", 0.98, "s"), ("A", 1.0, "s")))
    assert found == pytest.approx({"A": 1.0, "B": 1.03, "C": 0.98})
    (slowest, *_) = rows = spreads([(DEVICE, found), (DEVICE, {"A": 1.0, "B": 1.05})])
    assert [row.gpu for row in rows] == ["B", "A", "C"]
    assert slowest.series == 2
    assert slowest.ratio == pytest.approx(1.04)


def test_other_code_and_single_gpus_say_nothing() -> None:
    assert gpu_ratios(trend(("A", 1.0, "old"), ("B", 1.03, "new"))) == {}
    assert gpu_ratios(trend((None, 1.0, "s"), ("B", 1.03, "s"))) == {}
