"""The host's time of variants, judged relative to their baselines': on hosts whose cores have moods, and on three H200s' hosts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pairbench.analyze.compare.floors import calibrate_from
from pairbench.analyze.compare.runs import compare, confirm
from pairbench.features.ab import to_measure_again
from pairbench.model.comparison import Attribution, Change, GateOutcome, Judgement
from pairbench.model.record import HOST, Record
from tests.builders import judgement_of, make_run, moved_alone, with_device

DEVICE_NS = (50_000.0, 50_020.0, 49_980.0)
MOODS = (
    (1.0, 1.6, 1.0),
    (1.6, 1.0, 1.6),
    (1.6, 1.5, 1.6),
    (1.0, 1.0, 1.0),
    (1.5, 1.6, 1.5),
    (1.0, 1.6, 1.6),
    (1.6, 1.0, 1.6),
)
"""How many times as long as at best the host took in each round of some runs, as its core was shared with others."""
NOISE = (0.997, 1.003, 1.0)


def run(
    number: int, moods: Sequence[float] = (), *, baseline: float = 1.0, variant: float = 1.0, **changes: Any
) -> tuple[Record, ...]:
    """Return a run of eight pairs; `baseline` and `variant` are how many times as long those of the first take the host."""
    found: list[Record] = []
    for record in make_run(number, cases=[f"norm[n={size}]" for size in range(8)], rounds=3, **changes):
        level, factor = (60_000.0, baseline) if record.role == "baseline" else (20_000.0, variant)
        level *= NOISE[(number + (record.role == "variant")) % 3] * (factor if record.case == "norm[n=0]" else 1)
        rounds = zip(moods or MOODS[number % 7], NOISE, strict=True)
        found += with_device([record], device=DEVICE_NS, host=[level * mood * noise for mood, noise in rounds])
    return tuple(found)


CALM = [run(number) for number in range(5)]
FLOORS = calibrate_from(CALM).floors


def changed(current: Sequence[Record]) -> Change:
    """Return what became of the first variant; nothing else may have moved."""
    return moved_alone(compare(CALM[0], current, floors=FLOORS), "norm[n=0]")


def of_host(change: Change) -> Judgement:
    return judgement_of(change, HOST.p50)


def test_a_calibration_finds_that_the_ratio_repeats_where_the_host_does_not() -> None:
    for series, floor in FLOORS.items():
        assert floor.host is not None and floor.host > 0.2
        if series.implementation == "baseline":
            assert floor.host_relative is None
        else:
            assert floor.host_relative is not None and floor.host_relative < 0.05


@pytest.mark.parametrize("moods", MOODS)
def test_more_work_of_the_host_is_found_in_any_mood_which_itself_is_no_change(moods: tuple[float, ...]) -> None:
    found = changed(run(8, moods, variant=2.0))
    assert (found.outcome, found.attribution) == (GateOutcome.REGRESSION, Attribution.CODE)
    assert found.reason.startswith("issuing the call takes 19.")
    for words in (" us more (+98.2 % relative to its baseline", "the device is unchanged", "its source did not change"):
        assert words in found.reason
    assert "control" not in found.reason and "disagree" not in found.reason
    assert of_host(found).relative_to_baseline
    found = changed(run(8, moods))
    assert found.outcome is GateOutcome.UNCHANGED
    assert of_host(found).reason.startswith("host time relative to its baseline the same")


def test_a_baseline_that_moved_alone_says_nothing_of_its_variant() -> None:
    found = changed(run(8, MOODS[0], baseline=0.6))
    judged = of_host(found)
    assert (found.outcome, judged.outcome) == (GateOutcome.UNCHANGED, GateOutcome.UNDECIDED)
    assert "relative to its baseline, but " in judged.reason and "so it may be the baseline that moved" in judged.reason


def test_beside_a_baseline_with_another_source_it_is_not_judged() -> None:
    now = [replace(one, implementation_hash="f" * 16) if one.role == "baseline" else one for one in run(8, variant=2.0)]
    judged = of_host(changed(now))
    assert not judged.relative_to_baseline and "not judged" in judged.reason


@pytest.mark.parametrize(("mood", "factor", "seen"), [(0.7, 2.0, True), (2.4, 1.2, False)])
def test_it_has_to_be_seen_again_relative_to_the_baseline(mood: float, factor: float, seen: bool) -> None:
    """The second measurement is in a mood in which the variant's own time says the opposite."""
    suspects = run(8, (1.0, 1.0, 1.0), variant=2.0)
    judgement = of_host(changed(suspects))
    second = run(9, (mood, mood, mood), variant=factor, confirms=suspects[0].run_id)
    current, reference = [*suspects, *second], CALM[0]
    of_pair = [
        [one for one in (*reference, *current) if (one.case, one.role) == ("norm[n=0]", role)]
        for role in ("variant", "baseline")
    ]
    now, confirmed = confirm(judgement, of_pair[0][:1], of_pair[0][1:], controls=of_pair[1])
    assert confirmed is seen
    assert now.outcome is (GateOutcome.REGRESSION if seen else GateOutcome.UNDECIDED)


def test_interleaved_rounds_are_relative_to_the_baseline_as_well() -> None:
    found, still = (
        moved_alone(compare(run(0, MOODS[0]), run(8, MOODS[1], variant=more), interleaved=True), "norm[n=0]")
        for more in (1.5, 1.0)
    )
    assert (found.outcome, still.outcome) == (GateOutcome.REGRESSION, GateOutcome.UNCHANGED)
    assert " us more (+48.7 % relative to its baseline" in found.reason


def test_a_series_whose_runs_agree_by_chance_is_not_judged_by_itself() -> None:
    """Where the host's time does not repeat beside it, either."""
    baseline = next(series for series in FLOORS if (series.case, series.implementation) == ("norm[n=0]", "baseline"))
    lucky = {**FLOORS, baseline: replace(FLOORS[baseline], host=0.02)}
    changes = compare(CALM[3], run(8, (1.6, 1.6, 1.6)), floors=lucky)
    (found,) = [one for one in changes if one.series == baseline]
    assert "not judged" in of_host(found).reason


MEASURED = json.loads(Path(__file__).with_name("host_on_h200s.json").read_text(encoding="utf-8"))
"""Rounds of the host's time of `tests/suites/exam.py` in us, on three H200s' hosts. `runs`: of each series five runs by which the host is
calibrated, on two of them some more, and last one in which products had 20 us more of Python, a softmax a launch more and a GELU an operator
more; means of the lower half of a round. `ab`: on the first two, the rounds without and with these changes, medians. `ab_lower_means`: on the
third, the same twice, and once without a change on either side, means of the lower half, second rounds of what was measured again among them."""
PLANTED = {"product", "softmax", "gelu"}


def records(number: int, host_us: Mapping[str, Sequence[float]]) -> list[Record]:
    found = []
    for name, rounds in host_us.items():
        case, implementation = name.split()
        row = make_run(number, cases=[case], implementations=[implementation], rounds=len(rounds))[0]
        device = [50_000.0 + place for place in range(len(rounds))]
        (record,) = with_device([row], device=device, host=[1e3 * value for value in rounds])
        found.append(replace(record, role="baseline" if implementation == "baseline" else "variant"))
    return found


def moved(changes: Sequence[Change]) -> dict[str, str]:
    """Return why the host's time of some series is said to have moved."""
    return {
        f"{one.series.case} {one.series.implementation}": of_host(one).reason
        for one in changes
        if one.outcome in (GateOutcome.REGRESSION, GateOutcome.IMPROVEMENT)
    }


def runs_of(host: Mapping[str, Sequence[Sequence[float]]], count: int, rounds: int = 99) -> list[list[Record]]:
    return [records(at, {name: of_run[at][:rounds] for name, of_run in host.items()}) for at in range(count)]


@pytest.mark.parametrize("host", MEASURED["runs"])
def test_twenty_microseconds_of_python_are_found_on_a_host_that_does_not_repeat(
    host: Mapping[str, Sequence[Sequence[float]]],
) -> None:
    *runs, planted = runs_of(host, len(next(iter(host.values()))))
    floors = calibrate_from(runs[:5]).floors
    for before, now in pairwise(runs):
        assert not moved(compare(before, now, floors=floors)), "the same code moves nowhere from one run to the next"
    reference = [record for one in runs[:5] for record in one]
    for again in runs[5:]:
        assert not moved(compare(reference, again, floors=floors))
    found = moved(compare(reference, planted, floors=floors))
    operators = [name.partition("[")[0] for name in found]
    assert set(operators) <= PLANTED
    assert (operators.count("product"), operators.count("softmax")) == (4, 2)
    assert all("us more (+" in reason for reason in found.values())


@pytest.mark.parametrize("sides", MEASURED["ab"])
def test_side_by_side_they_are_found_as_well(sides: dict[str, list[list[float]]]) -> None:
    changes = compare(*runs_of(sides, 2), interleaved=True)
    found = moved(changes)
    assert {name.partition("[")[0] for name in found} <= PLANTED
    assert sum(name.startswith("product") for name in found) == 2
    again = [series.operator for series in to_measure_again(changes)]
    assert again.count("product") >= 3  # the two that are found, and what looks slower
    assert len([name for name in again if name not in PLANTED]) <= 2  # by chance, of 18
    reasons = "; ".join(of_host(one).reason for one in changes)
    assert "those of the quietest rounds" in reasons and "medians of all samples" not in reasons


# The command found the fourth of the first as well: p = 0.0031 beside all that had changed, kernels among it, and 0.0073 beside these alone.
@pytest.mark.parametrize(("which", "at_once", "in_the_end"), [(0, 3, 3), (1, 2, 4), (2, 0, 0)])
def test_second_rounds_find_more_of_the_python(which: int, at_once: int, in_the_end: int) -> None:
    sides = MEASURED["ab_lower_means"][which]
    found, in_all = (moved(compare(*runs_of(sides, 2, rounds), interleaved=True)) for rounds in (5, 10))
    assert [sum(name.startswith("product[") for name in one) for one in (found, in_all)] == [at_once, in_the_end]
    assert {name.partition("[")[0] for name in in_all} <= (PLANTED if in_the_end else set())
