import json
from dataclasses import replace
from typing import Any

import pytest

from pairbench.features.attempt.attempts import beside
from pairbench.model.environment import HostLoad
from pairbench.model.record import Record
from tests.analyze.test_records import ENVIRONMENT
from tests.builders import make_run, with_device

BUSY = json.dumps(HostLoad(cores=2, before=1.9).put_in(ENVIRONMENT).rest)


def record(p50_us: float, *, spread: float = 0.001, **changes: Any) -> Record:
    """Return a variant's result on a CPU, with the ends of its interval so far from its median."""
    (_, variant) = make_run(device_kind="cpu", timer="perf_counter", cases=("norm[n=1]",))
    latency = {"call_p50_ns": p50_us * 1e3, "device_p50_ns": None}
    latency |= {"call_p50_ns_low": p50_us * 1e3 * (1 - spread), "call_p50_ns_high": p50_us * 1e3 * (1 + spread)}
    return replace(variant, **{**latency, "environment": "{}", **changes})


def speedup(value: float) -> dict[str, Any]:
    return {"speedup": value, "speedup_low": value * 0.999, "speedup_high": value * 1.001}


@pytest.mark.parametrize(
    ("now", "then", "clear"),
    [(100.0, 120.0, True), (120.0, 100.0, True), (100.0, 103.0, False), (1.7, 1.8, False), (1.2, 1.8, True)],
    ids=["faster", "slower", "as processes differ", "as short calls differ", "a short call, much faster"],
)
def test_a_change_is_clear_where_processes_differ_by_less(now: float, then: float, clear: bool) -> None:
    found = beside(record(now), record(then))
    assert found.change == pytest.approx(now / then) and found.clear is clear and not found.why_not


def test_on_a_gpu_processes_differ_by_less_than_on_a_cpu() -> None:
    gpu: dict[str, Any] = {"device_kind": "cuda", "timer": "cuda_event"}
    faster, slower = (with_device([record(us, **gpu)], device=[us * 1e3])[0] for us in (100.0, 103.0))
    assert beside(faster, slower).clear and not beside(record(100.0), record(103.0)).clear
    assert not beside(record(100.0, spread=0.2), record(120.0)).clear, "wide intervals hide a change"


def test_a_change_that_the_baseline_shares_or_that_is_of_another_environment_says_so() -> None:
    now, then = record(100.0, **speedup(1.5)), record(120.0, **speedup(1.51))
    assert beside(now, then).clear and beside(now, then).shared
    assert not beside(now, replace(then, **speedup(1.25))).shared, "the speedup changed as well, so it is the variant"
    assert not beside(replace(now, role="baseline"), then).shared
    elsewhere = beside(now, replace(then, environment_hash="another"))
    assert elsewhere.clear and elsewhere.elsewhere and not beside(now, then).elsewhere


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        ({"definition_hash": "another"}, "the operator's definition was another"),
        ({"timer": "asv"}, "its latency was taken in another way"),
        ({"environment": BUSY}, "its host was busy"),
    ],
    ids=["definition", "timer", "busy"],
)
def test_what_cannot_be_compared_says_why(earlier: dict[str, Any], why: str) -> None:
    found = beside(record(100.0), record(120.0, **earlier))
    assert found.why_not == why and found.change is None and not found.clear
    busy = beside(record(100.0, environment=BUSY), record(120.0))
    assert busy.change is None and not busy.why_not
