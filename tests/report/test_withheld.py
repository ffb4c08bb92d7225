"""A CPU that had other work to do: its times are marked, its speedups are not shown, and the table says why."""

import json
from collections.abc import Callable

import pytest

from pairbench.model.record import Record
from pairbench.report.rows import MEANINGS, expanded, render

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


@pytest.mark.parametrize("output", ["table", "markdown"])
def test_short_words_are_explained_once_below_the_first_table_that_has_them(
    baseline: Make, variant: Make, output: str
) -> None:
    pairs = [
        make(*name, operator=operator, case=f"{operator}[n=1]", device_kind="cpu", environment=environment)
        for operator, environment in (("first", LOADED), ("second", LOADED))
        for make, name in ((baseline, ()), (variant, ("fused",)))
    ]
    text = render(pairs, output)
    places = [text.index(f"{word}: ") for word in MEANINGS if word != "oracle ratio"]
    assert text.index("first") < places[0] < text.index("second")
    assert all(text.count(meaning) == 1 for meaning in list(MEANINGS.values())[:3])
    quiet = render([baseline(device_kind="cpu", ops_per_call=None)], "table")
    assert MEANINGS["?"] not in quiet and "ops: " not in quiet and "±: " in quiet
