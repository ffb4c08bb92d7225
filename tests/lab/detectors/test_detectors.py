"""The benchmark of the detectors, on a few series: what it counts, and that its page can be made."""

import importlib.util
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.lab.detectors import bench, noises, real, scores
from tests.lab.detectors.noises import Floats
from tests.lab.detectors.peers import DETECTORS, Detector, pairbench, perfherder, ratio
from tests.lab.page import tables_in


def at(*places: int) -> scores.Find:
    return lambda levels: [place for place in places if place < len(levels)]


@pytest.mark.parametrize("noise", [*noises.NOISES, *noises.HARDER])
def test_noise_has_its_size_and_comes_again(noise: str) -> None:
    series = noises.null("development", noise, 0.02, 7, 20_000)
    assert (series == noises.null("development", noise, 0.02, 7, 20_000)).all()
    assert not (series == noises.null("held-out", noise, 0.02, 7, 20_000)).any()
    spread = 1.4826 * np.median(np.abs(series - np.median(series)))
    assert spread == pytest.approx(0.02, rel=0.7)


def test_noises_are_what_the_page_says() -> None:
    def memory(noise: str) -> float:
        series = noises.null("development", noise, 0.02, 1, 20_000)
        return float(np.corrcoef(series[1:], series[:-1])[0, 1])

    assert memory("iid") == pytest.approx(0, abs=0.03)
    assert memory("AR(1) 0.5") == pytest.approx(0.5, abs=0.03)
    # Modes remember 1 - 2 * 0.2; a fifth of the variance is within them.
    assert memory("sticky two-mode") == pytest.approx(0.6 / 1.25, abs=0.03)
    assert np.mean(noises.null("development", "4 % spikes", 0.01, 1, 20_000) > 0.06) == pytest.approx(0.04, abs=0.005)


def test_steps_lie_in_the_middle() -> None:
    places = [noises.step_of("development", "iid", 0.01, number) for number in range(300)]
    assert (min(places), max(places)) == (30, 70)
    lifted = noises.stepped(np.zeros(5), 3, 0.03)
    assert np.exp(lifted).tolist() == pytest.approx([1, 1, 1, 1.03, 1.03])


def test_scores_count_what_they_say() -> None:
    assert scores.null_alarms(at(50), "development", "iid", 0.01, 4) == 1
    assert scores.null_alarms(at(), "development", "iid", 0.01, 4) == 0
    place = noises.step_of("development", "iid", 0.01, 0)
    assert scores.recall(at(place + 3), "development", "iid", 0.01, 1) == ([1, 1, 1, 1], 0)
    assert scores.recall(at(place + 4), "development", "iid", 0.01, 1) == ([0, 0, 0, 0], 1)
    assert scores.recall(at(3, place), "development", "iid", 0.01, 1) == ([1, 1, 1, 1], 1)
    assert scores.delays(at(62), "development", "iid", 0.01, 2, 0.05) == [3, 3]
    assert scores.delays(at(70), "development", "iid", 0.01, 2, 0.05) == [31, 31]
    assert scores.ever_alarms(at(99), "development", "iid", 0.01, 2) == 1


def test_a_few_held_out_series_agree_with_the_target() -> None:
    """The page has the real figures; these would notice that something broke."""
    for noise in noises.NOISES:
        assert scores.null_alarms(pairbench, "held-out", noise, 0.02, 12) <= 1 / 12
        found, elsewhere = scores.recall(pairbench, "held-out", noise, 0.01, 8)
        assert found[1] >= 0.75
        assert found[2] >= 0.9
        assert elsewhere <= 0.2


def test_restated_rules() -> None:
    levels = np.log(np.concatenate([np.full(30, 100.0), np.full(30, 110.0)])) + 0.002 * np.sin(np.arange(60))
    assert perfherder(levels) == [30]
    assert ratio(levels) == [30]
    assert perfherder(np.zeros(60)) == ratio(np.zeros(60)) == []
    assert ratio(-levels) == []


@pytest.mark.parametrize("detector", DETECTORS, ids=lambda detector: detector.name)
def test_every_detector_finds_a_plain_step_where_it_is(detector: Detector) -> None:
    package = re.match(r"(asv|otava|PELT)", detector.name)
    if package and importlib.util.find_spec({"PELT": "ruptures"}.get(package[0], package[0])) is None:
        pytest.skip(f"{package[0]} is not installed; `nox -s detectors` brings it")
    levels: Floats = noises.stepped(noises.null("development", "iid", 0.005, 0), 50, 0.2)
    assert detector.find(levels) == [50]


def test_the_page_is_filled() -> None:
    tables = tables_in(bench.PAGE.read_text(encoding="utf-8"))
    assert len(tables) == 10
    assert [name for name, table in tables.items() if table.count("|") < 10] == []


def test_agreement_with_what_people_marked() -> None:
    series = real.RealSeries(name="x", half="held-out", levels=np.zeros(100), marked=((20, 60), (20,), ()))
    # Of 0, 22 and 80, the first two are near what anybody marked; people see 2 of 3, 2 of 2 and 1 of 1 of theirs found.
    precision, recall, f1 = real.agreement(at(22, 80), series)
    assert [precision, recall] == pytest.approx([2 / 3, (2 / 3 + 1 + 1) / 3])
    assert f1 == pytest.approx(2 * precision * recall / (precision + recall))


def test_real_series_are_read_from_a_folder(tmp_path: Path) -> None:
    assert real.read(tmp_path) == []
    (tmp_path / "otava_tigerbeetle.csv").write_text("index,value\n0,100\n1,200\n", encoding="utf-8")
    (tmp_path / "tcpd").mkdir()
    (tmp_path / "tcpd" / "run_log.json").write_text(json.dumps({"series": [{"raw": [1.0, 2.0]}]}), encoding="utf-8")
    (tmp_path / "tcpd" / "annotations.json").write_text(json.dumps({"run_log": {"6": [1], "7": []}}), encoding="utf-8")
    log, beetle = real.read(tmp_path)
    assert (log.name, log.marked, log.half) == ("run_log", ((1,), ()), "held-out")
    assert beetle.levels.tolist() == [math.log(100), math.log(200)]
