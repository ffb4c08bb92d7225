"""Records taken apart for pages: numbers that are there, texts, the environment, and where a series stands."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pairbench.analyze.compare.runs import compare
from pairbench.analyze.facts import ceilings_of, environment_of, run_head, series_facts
from pairbench.model.comparison import Attribution
from pairbench.model.environment import HostLoad
from pairbench.model.record import LazyRecords, Record, Series
from pairbench.model.site import SeriesFacts, SeriesStatus
from pairbench.site.summary import gate_status_of, worst
from tests.analyze.test_records import ENVIRONMENT
from tests.builders import CASES, ended, make_run


def facts_of(record: Record, **more: Any) -> SeriesFacts:
    series = Series.of(record)
    assert series is not None
    return series_facts(record, series, SeriesStatus(state="new"), **more)


def test_only_numbers_that_are_there() -> None:
    record = replace(make_run(0)[1], margin=math.nan, power_w=None, syncs_per_call=0, consumes=("x",))
    facts = facts_of(record, samples=np.arange(101.0))
    assert facts.numbers["call_p50_ns"] == record.call_p50_ns and facts.numbers["syncs_per_call"] == 0
    assert not {"margin", "power_w", "dirty", "status"} & facts.numbers.keys()
    assert (facts.texts["timer"], facts.texts["consumes"]) == ("cuda_event", "x")
    assert facts.axes == {"dtype": "bfloat16"} and facts.quantiles == pytest.approx(range(101))
    few = facts_of(record, columns=("n_rounds",))
    result = {f"{name}{end}" for name in ("p50_ns", "p95_ns") for end in ("", "_low", "_high")}
    assert set(few.numbers) == {"n_rounds", "speedup", "call_speedup", *result} and few.quantiles == ()


@pytest.mark.parametrize(("kind", "result"), [("cuda", "device"), ("cpu", "call")])
def test_the_result_has_the_same_names_on_every_device(kind: str, result: str) -> None:
    device: dict[str, Any] = {"device_p50_ns": 17_900.0, "device_p50_ns_low": 17_800.0, "device_p95_ns": 18_500.0}
    device |= {"device_kind": kind, "device_speedup": 1.27, "device_speedup_high": 1.3, "bound": "host"}
    record = replace(make_run(0)[1], **device)
    facts = facts_of(record)
    expected = {
        "device": (17_900.0, 17_800.0, 18_500.0, 1.27, 1.3),
        "call": (record.call_p50_ns, record.call_p50_ns_low, record.call_p95_ns, record.speedup, None),
    }
    names = ("p50_ns", "p50_ns_low", "p95_ns", "speedup", "speedup_high")
    assert tuple(facts.numbers.get(name) for name in names) == expected[result]
    assert facts.numbers["call_speedup"] == record.speedup
    assert [facts.texts[name] for name in ("latency", "bound", "speedup_of")] == [result, "host", result]
    alone = facts_of(replace(record, device_speedup=None))
    assert (alone.texts["speedup_of"], alone.numbers["speedup"]) == ("call", record.speedup)


def test_a_cpu_that_had_other_work_to_do_has_no_speedup() -> None:
    busy = HostLoad(cores=2, before=2.0)
    record = replace(make_run(0)[1], device_kind="cpu", environment=json.dumps(busy.put_in(ENVIRONMENT).rest))
    facts = facts_of(record)
    assert record.speedup and not {"speedup", "speedup_low", "speedup_high", "call_speedup"} & facts.numbers.keys()
    assert facts.numbers["p50_ns"] and facts.texts["withheld"] == busy.disturbs("cpu")


def test_an_environment_that_is_no_json_is_empty() -> None:
    record = make_run(0)[0]
    assert environment_of(record) == {"flags": {"matmul.allow_tf32": False}}
    assert environment_of(replace(record, environment="{")) == {}
    assert environment_of(replace(record, environment="[1]")) == {}
    measured = '{"observed": {"ceilings": {"copy_gbps": 4245.5, "note": "x"}}}'
    assert ceilings_of(replace(record, environment=measured)) == {"copy_gbps": 4245.5}
    assert ceilings_of(replace(record, environment='{"observed": []}')) == {}


def test_the_head_of_a_run_counts_how_its_records_ended() -> None:
    run = make_run(0)
    head = run_head(run[0], LazyRecords.of([*run[:3], ended(run[3], "oom"), ended(run[3], "failed")]))
    assert head.statuses == {"measured": 3, "oom": 1, "failed": 1}
    assert head.timers == ("cuda_event",) and head.versions["driver"] == "580.1" and not head.dirty


def test_a_comparison_says_where_a_series_stands() -> None:
    changes = {change.series: change for change in compare(make_run(0), make_run(1, slower={f"{CASES[0]}-fused": 1.2}))}
    series = next(one for one in changes if (one.case, one.implementation) == (CASES[0], "fused"))
    gate_status = gate_status_of("measured", None, changes[series], None)
    assert (gate_status.state, gate_status.attribution) == ("regression", Attribution.CODE)
    assert gate_status.change is not None and gate_status.change.low > 1.15
    assert gate_status_of("oom", "no room", changes[series], None).reason == "oom: no room"
    assert gate_status_of("skipped", "not valid here", None, None).state == "skipped"
    assert gate_status_of("measured", None, None, None).state == "new"


def test_the_worst_state_is_that_of_the_whole() -> None:
    assert worst(["unchanged", "improvement", "regression", "undecided"]) == "regression"
    assert worst([]) == "skipped"
