"""The gate on comparisons whose truth is known: a small version of the benchmark, which holds its promises in each change."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pairbench.analyze.compare.runs import compare
from pairbench.model.comparison import GateOutcome, Verdict
from pairbench.model.record import Record
from tests.builders import make_run
from tests.lab.gate import bench
from tests.lab.gate.simulate import (
    MARKS_NS,
    NOISES,
    OF_CASE,
    PEERS,
    Bench,
    Noise,
    Setting,
    Side,
    apart,
    caught,
    draw,
    judge,
    make_bench,
    peers,
    quiet,
    rank_test,
    ratio,
    spread_of,
)
from tests.lab.page import tables_in

pytestmark = pytest.mark.slow

PLAIN, WORST, *HARDER = NOISES
SEED = 77


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
@pytest.mark.parametrize("floors", [False, True])
def test_identical_sides_raise_hardly_any_alarm(noise: Noise, floors: bool) -> None:
    """The promise is one in a hundred comparisons; more than 2 of 60 would have a chance of 2 %."""
    found = quiet(Setting(noise=noise, reference_runs=5, floors=floors), 60, SEED)
    assert found.with_alarm <= 2
    # Where some calls are throttled, not all can be proven to be the same.
    proven = 0.95 if noise.uneven > 0.5 else 0.99
    assert found.same["100 us and more"] >= proven * found.series["100 us and more"]


@pytest.mark.parametrize("noise", [PLAIN, WORST], ids=lambda noise: noise.name)
@pytest.mark.parametrize("runs", [1, 5])
def test_two_percent_is_caught_from_100_us_up(noise: Noise, runs: int) -> None:
    found = caught(Setting(noise=noise, reference_runs=runs, floors=False), 40, SEED)
    for mark in ("100 us", "more"):
        assert found[mark, 0.02]["slower"] >= 39, mark
        assert found[mark, 0.05]["slower"] == 40, mark
    # What cannot be told is undecided, and never called the same.
    assert found["6 us", 0.05]["same"] == 0


def test_a_machine_that_became_faster_hides_no_two_percent() -> None:
    hidden = Setting(noise=PLAIN, reference_runs=5, floors=False, alike=True, machine=bench.FASTER)
    found, alone = (caught(replace(hidden, relative=relative), 40, SEED) for relative in (True, False))
    for mark in ("100 us", "more"):
        assert found[mark, 0.02]["slower"] >= 39, mark
        assert alone[mark, 0.02]["slower"] <= 10, mark


def test_comparisons_of_records_are_those_of_the_benchmark() -> None:
    """The benchmark feeds the arithmetic directly; through records, the verdicts have to be the same."""
    rng = np.random.default_rng(SEED)
    small = make_bench(rng, 30, alike=True)
    spread = spread_of(small, PLAIN, rng)
    sides = [draw(small, PLAIN, spread, rng, runs=runs) for runs in (3, 1)]
    sides[1].p50[4] += 0.05
    # The machine got faster for one case, and one of its variants slower.
    longest = int(np.argmax(small.latency_ns))
    sides[1].p50[longest : longest + OF_CASE] += bench.FASTER
    sides[1].p50[longest + 1] += 0.019
    nothing = np.full(30, math.nan)
    p50, _ = judge(small, sides[0], sides[1], (nothing, nothing))
    changes = compare(*(_records(small, side, first) for side, first in zip(sides, (0, 3), strict=True)))
    for index, change in enumerate(changes):
        expected = {Verdict.SLOWER: p50.slower[index], Verdict.FASTER: p50.faster[index], Verdict.SAME: p50.same[index]}
        assert expected.get(change.verdict or Verdict.UNDECIDED, not any(expected.values())), change
    assert np.flatnonzero(p50.slower).tolist() == sorted([4, longest + 1])
    assert Counter(change.outcome for change in changes)[GateOutcome.REGRESSION] == 2


def _records(small: Bench, side: Side, first: int) -> list[Record]:
    """Return the records of the series, in the cases that the benchmark has."""
    found = []
    for run in range(side.p50.shape[1]):
        for index, latency in enumerate(small.latency_ns):
            case, place = divmod(index, OF_CASE)
            (record,) = make_run(first + run, cases=[f"op[n={case}]"], implementations=[f"number_{place}"])
            found.append(
                replace(
                    record,
                    role="baseline" if small.null[index] else "variant",
                    round_p50_ns=tuple(latency * np.exp(side.p50[index, run])),
                    round_p95_ns=tuple(latency * np.exp(side.p95[index, run])),
                )
            )
    return found


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_noise_is_what_the_page_says(noise: Noise) -> None:
    rng = np.random.default_rng(SEED)
    marks = np.repeat(MARKS_NS, 4000)
    of_marks = Bench(latency_ns=marks, null=np.zeros(len(marks), dtype=np.bool_))
    side = draw(of_marks, noise, spread_of(of_marks, replace(noise, uneven=0), rng), rng, runs=3)
    within = side.p50.var(axis=2, ddof=1).reshape(3, -1).mean(axis=1)
    assert np.sqrt(within) == pytest.approx([*noise.short, noise.steady], rel=0.1)
    between = side.p50.mean(axis=2).var(axis=1, ddof=1).reshape(3, -1).mean(axis=1) - within / 3
    assert between[2] == pytest.approx(noise.of_run**2, abs=4e-7)
    assert (side.p95 - side.p50).std() > side.p50.std()


def test_peers_are_what_they_are_called() -> None:
    before = np.random.default_rng(SEED).normal(0, 0.01, (1, 30))
    for rule in (ratio(1.05), rank_test(0.05), rank_test(0.002, 1.05), apart):
        assert not rule(before, before).any()
        assert rule(before, before + 0.1).all() and rule(before, before - 0.1).all()
    assert not ratio(1.05)(before, before + 0.04).any() and not rank_test(0.002, 1.05)(before, before + 0.04).any()
    # Three against three can never reach 5 %.
    assert not rank_test(0.05)(before[:, :3], before[:, :3] + 1).any()


def test_peers_are_counted() -> None:
    found = peers(Setting(noise=PLAIN, reference_runs=1, floors=False, series=40), 3, SEED)
    assert set(found) == {peer.name for peer in PEERS}
    assert found["Mann-Whitney p < .05 on pooled samples"]["comparisons"] == 3
    assert found["Mann-Whitney p < .05 on pooled samples"]["100 us 2%"] == 3
    assert found["ratio of medians > 1.05"]["100 us 2%"] == 0


def test_the_page_holds_what_it_promises() -> None:
    """The published table itself: at most 1 % of comparisons alarm, and +2 % from 100 us up is caught in 99 %."""
    page = bench.PAGE.read_text(encoding="utf-8")
    tables = {name: _rows(table) for name, table in tables_in(page).items()}
    assert [*tables] == ["alarms", "caught", "small", "hidden", "peers"]
    (_, _, *alarms), (head, _, *caught_) = tables["alarms"], tables["caught"]
    assert len(alarms) == len(caught_) == len(bench.settings())
    assert max(float(row[3].split()[0]) for row in alarms) <= 1.0
    columns = [head.index("+2 %, 100 us"), head.index("+2 %, more")]
    plain = [row for row in caught_ if row[0] in (PLAIN.name, WORST.name)]
    assert len(plain) == 8
    assert min(float(row[column]) for row in plain for column in columns) >= 99


def _rows(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
