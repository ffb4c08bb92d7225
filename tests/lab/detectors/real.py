"""Real series: where people marked the changes, how well a detector agrees; elsewhere, how many changes it reports."""

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.lab.detectors.noises import Floats
from tests.lab.detectors.scores import Find

MARGIN = 5  # runs that a change may be off by, as in the Turing Change Point Dataset's own scoring


@dataclass(frozen=True, kw_only=True)
class RealSeries:
    """Natural logarithms of a series, with what people marked in it."""

    name: str
    half: str
    levels: Floats
    marked: tuple[tuple[int, ...], ...] = ()  # for each person; empty where nobody was asked


def read(folder: Path) -> list[RealSeries]:
    """Return the series that are in a folder laid out as the page says; what is not there is left out."""
    found = []
    annotations = folder / "tcpd" / "annotations.json"
    for name, half in (("well_log", "development"), ("run_log", "held-out")):
        file = folder / "tcpd" / f"{name}.json"
        if file.is_file() and annotations.is_file():
            people = json.loads(annotations.read_text(encoding="utf-8"))[name]
            values = json.loads(file.read_text(encoding="utf-8"))["series"][0]["raw"]
            marked = tuple(tuple(sorted(places)) for places in people.values())
            found.append(RealSeries(name=name, half=half, levels=_logs(values), marked=marked))
    for name, half in (("robust_series", "development"), ("real_series", "held-out")):
        file = folder / "mongodb_spa" / f"{name}.json"
        if file.is_file():
            values = json.loads(file.read_text(encoding="utf-8"))
            found.append(RealSeries(name=f"mongodb {name}", half=half, levels=_logs(values)))
    file = folder / "otava_tigerbeetle.csv"
    if file.is_file():
        with file.open(encoding="utf-8", newline="") as lines:
            values = [float(row["value"]) for row in csv.DictReader(lines)]
        found.append(RealSeries(name="tigerbeetle", half="held-out", levels=_logs(values)))
    return found


def agreement(find: Find, series: RealSeries) -> tuple[float, float, float]:
    """Return precision, recall and F1 as the Turing Change Point Dataset defines them.

    Precision is against what anybody marked, recall the mean over people; the start counts as marked and as found.
    Source: van den Burg and Williams, An Evaluation of Change Point Detection Algorithms, 2020, section 3.
    """
    found = sorted({0, *find(series.levels)})
    anybody = sorted({0, *(place for places in series.marked for place in places)})
    precision = len(_matched(anybody, found)) / len(found)
    everybody = [sorted({0, *places}) for places in series.marked]
    recall = float(np.mean([len(_matched(places, found)) / len(places) for places in everybody]))
    return precision, recall, 2 * precision * recall / (precision + recall)


def _matched(truth: list[int], found: list[int]) -> list[int]:
    """Return the true places that have a found one within the margin, each found one used once."""
    left = list(found)
    matched = []
    for place in truth:
        near = [run for run in left if abs(run - place) <= MARGIN]
        if near:
            left.remove(min(near, key=lambda run: abs(run - place)))
            matched.append(place)
    return matched


def _logs(values: list[float]) -> Floats:
    logs: Floats = np.log(np.array(values, dtype=np.float64))
    return logs
