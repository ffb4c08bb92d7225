from dataclasses import replace

from pairbench.analyze.compare.runs import compare
from pairbench.analyze.facts import run_head
from pairbench.model.record import LazyRecords, Record, Series
from pairbench.model.site import RunHead
from pairbench.site.gather import overlapping, run_verdicts
from tests.builders import CASES, DEVICE, ended, make_run, run_id_of


def pairs(*runs: tuple[Record, ...]) -> dict[tuple[str, str], str]:
    heads: list[RunHead] = [run_head(run[0], LazyRecords.of(run)) for run in runs]
    series = {
        (head.run_id, head.device_name): {one for record in run if (one := Series.of(record))}
        for head, run in zip(heads, runs, strict=True)
    }
    return overlapping(heads, series)


def test_the_newest_run_that_measured_enough_of_the_same() -> None:
    other = ("softmax[dtype=bfloat16,tokens=64]",)
    found = pairs(make_run(0), make_run(1, cases=other), make_run(2), make_run(3, cases=(*CASES, *other)))
    assert found[run_id_of(2), DEVICE] == run_id_of(0), "the newest run before shares nothing"
    assert found[run_id_of(3), DEVICE] == run_id_of(2)
    assert (run_id_of(0), DEVICE) not in found and (run_id_of(1), DEVICE) not in found


def test_what_shares_most_where_none_shares_enough() -> None:
    many = [f"op[n={number}]" for number in range(9)]
    found = pairs(make_run(0, cases=many[:3]), make_run(1, cases=many[:2]), make_run(2, cases=many))
    assert found[run_id_of(2), DEVICE] == run_id_of(0)


def test_no_run_of_another_device_and_none_that_measured_suspects_again() -> None:
    elsewhere = tuple(replace(one, device_name="NVIDIA H100") for one in make_run(1))
    again = tuple(replace(one, confirms=run_id_of(0)) for one in make_run(2))
    found = pairs(make_run(0), elsewhere, again, make_run(3))
    assert found == {(run_id_of(3), DEVICE): run_id_of(0)}


def test_a_reader_is_told_the_worst_first_and_no_noise() -> None:
    before, after = make_run(0), make_run(1, slower={f"{CASES[0]}-fused": 1.3})
    after = (*after[:-1], ended(after[-1], "failed", "boom"))
    new = make_run(1, cases=["rope[n=1]"])
    told = run_verdicts(DEVICE, compare(before, (*after, *new)), [(run_id_of(0), DEVICE)])
    assert [str(change.outcome) for change in told.changes] == ["failed", "regression"]
    assert told.counts["failed"] == told.counts["regression"] == 1 and len(told.outcomes) == 6
    assert [one.operator for one in told.new] == ["rope", "rope"]
    assert told.references == {run_id_of(0): True} and told.moves[0].startswith("1 regression: P50 +")
    assert run_verdicts("another", compare(before, after), []).outcomes == {}
