"""Measure the gate's error rates and those of other rules, and write the tables of README.md beside this file.

python -m tests.lab.gate.bench [--write] [--comparisons 1000] [--seed 1000]
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.lab.gate.simulate import EFFECTS, MARKS, NOISES, RANGES, SERIES, Setting, caught, peers, quiet
from tests.lab.page import Rows, make, rate

PAGE = Path(__file__).with_name("README.md")
HELD_OUT = 2000  # seed of what the page shows; thresholds were chosen on seeds below 10
SMALL = 20  # series of a small comparison

FASTER = -0.0065  # how much longer an H100 took for some kernels from one minute to the next, log units


def settings(series: int = SERIES) -> list[Setting]:
    """Return every noise with one and with five reference runs, without and with noise floors."""
    return [
        Setting(noise=noise, reference_runs=runs, floors=floors, series=series)
        for noise in NOISES
        for runs in (1, 5)
        for floors in (False, True)
    ]


def _measured(comparisons: int, seed: int) -> Iterator[tuple[str, Rows]]:
    head = ["spread", "reference runs", "floors"]
    rows = [[*head, "comparisons with any alarm, %", *(f"same, {name}" for name in RANGES)]]
    for index, setting in enumerate(settings()):
        found = quiet(setting, comparisons, seed + index)
        same = [f"{100 * found.same[name] / found.series[name]:.1f}" for name in RANGES]
        rows.append([*_said(setting), rate(found.with_alarm, comparisons), *same])
    yield "alarms", rows
    rows = [[*head, *(f"+{100 * effect:.0f} %, {mark}" for mark in MARKS for effect in EFFECTS)]]
    for index, setting in enumerate(settings()):
        words = caught(setting, comparisons // 4, seed + 100 + index)
        rows.append([*_said(setting), *(f"{100 * said['slower'] / said.total():.1f}" for said in words.values())])
    yield "caught", rows
    rows = [[*head, "comparisons with any alarm, %", "caught: +2 %, 100 us", "+2 %, more", "+5 %, 14 us"]]
    for index, setting in enumerate(settings(SMALL)):
        found = quiet(setting, comparisons, seed + 200 + index)
        words = caught(setting, comparisons // 4, seed + 300 + index)
        chosen = [words["100 us", 0.02], words["more", 0.02], words["14 us", 0.05]]
        shares = [f"{100 * said['slower'] / said.total():.1f}" for said in chosen]
        rows.append([*_said(setting), rate(found.with_alarm, comparisons), *shares])
    yield "small", rows
    yield "hidden", _hidden(comparisons, seed + 500)
    yield "peers", _peers(comparisons // 20, seed + 400)


def _hidden(comparisons: int, seed: int) -> Rows:
    chosen = [(mark, effect) for mark in ("100 us", "more") for effect in EFFECTS]
    caught_head = [f"+{100 * effect:.0f} %, {mark}" for mark, effect in chosen]
    rows = [["spread", "reference runs", "judged by", "comparisons with any alarm, %", *caught_head]]
    for noise, runs in itertools.product((NOISES[0], NOISES[2], NOISES[-1]), (1, 5)):
        for relative, words in ((False, "its latency alone"), (True, "its latency, and relative to its baseline")):
            setting = Setting(noise=noise, reference_runs=runs, floors=False, alike=True, relative=relative)
            alarms = quiet(setting, comparisons, seed)
            said = caught(replace(setting, machine=FASTER), comparisons // 4, seed + 1)
            shares = [f"{100 * said[place]['slower'] / said[place].total():.1f}" for place in chosen]
            rows.append([noise.name, str(runs), words, rate(alarms.with_alarm, comparisons), *shares])
    return rows


def _peers(comparisons: int, seed: int) -> Rows:
    chosen = [("100 us", 0.02), ("14 us", 0.03), ("14 us", 0.05), ("6 us", 0.05)]
    caught_head = [f"caught: +{100 * effect:.0f} %, {mark}" for mark, effect in chosen]
    rows = [["rule", "reference runs", "comparisons with any alarm, %", "series with an alarm, %", *caught_head]]
    for runs in (1, 5):
        setting = Setting(noise=NOISES[0], reference_runs=runs, floors=False)
        for name, counter in peers(setting, comparisons, seed + runs).items():
            shares = [f"{100 * counter[f'{mark} {effect:.0%}'] / comparisons:.1f}" for mark, effect in chosen]
            series = f"{100 * counter['series'] / comparisons / setting.series:.2f}"
            rows.append([name, str(runs), f"{100 * counter['comparisons'] / comparisons:.1f}", series, *shares])
    return rows


def _said(setting: Setting) -> list[str]:
    return [setting.noise.name, str(setting.reference_runs), "20 runs" if setting.floors else "none"]


if __name__ == "__main__":
    sys.exit(make(PAGE, _measured, what="comparisons", number=1000, seed=HELD_OUT))
