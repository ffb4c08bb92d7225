"""A CPU that had other work to do: its times are marked, its speedups are not shown, and the table says why."""

import json
from collections.abc import Callable

import pytest

from pairbench.model.record import Record
from pairbench.report.table import expanded, render

Make = Callable[..., Record]
LOADED = json.dumps(
    {
        "observed": {
            "load": {"cores": 2, "before": 2.0, "rounds": [1.0], "performance_states": [], "foreign_processes": []}
        }
    }
)


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_the_headline_is_withheld_and_nothing_else(baseline: Make, variant: Make, output: str) -> None:
    changes = {"device_kind": "cpu", "environment": LOADED}
    pair = [baseline(**changes), variant("fused", **changes)]
    text = render(pair, output)
    assert "withheld" in text and "2.000x" not in text and "1.980" not in text
    assert "41.00 us?" in text
    assert "2.0 of 2 cores are busy with other work: latencies of this run are not to be believed" in text
    assert expanded(pair[1])["speedup"] == pytest.approx(2.0), "what is stored stays as it is"


def test_an_idle_host_and_a_gpu_are_shown_as_ever(baseline: Make, variant: Make) -> None:
    for changes in ({"device_kind": "cuda", "environment": LOADED}, {"device_kind": "cpu"}):
        text = render([baseline(**changes), variant("fused", **changes)], "table")
        assert "2.000x" in text and "withheld" not in text and "us?" not in text
