import math
from dataclasses import replace
from typing import get_type_hints

from pairbench.model.record import (
    CALL,
    DEVICE,
    LATENCIES,
    RESULT_COLUMNS,
    Record,
    p50_of,
    p95_of,
    result_of,
    speedup_of,
)
from pairbench.stats import Interval
from tests.builders import make_run, with_device

CALL_ONLY = make_run()[1]
GPU = replace(with_device([CALL_ONLY], device=(40_000.0, 41_000.0, 42_000.0))[0], device_speedup=1.5)
CPU = replace(CALL_ONLY, device_kind="cpu")


def test_every_column_that_is_named_is_one() -> None:
    known = get_type_hints(Record)
    assert {
        *RESULT_COLUMNS,
        *(name for one in LATENCIES for name in (one.p50, one.p95, one.speedup, *one.rounds)),
    } <= known.keys()


def test_on_a_gpu_it_is_the_device_s() -> None:
    assert result_of(GPU) is DEVICE
    p50 = p50_of(GPU)
    assert p50 is not None and p50.estimate == 41_000.0 and math.isnan(p50.low) and math.isnan(p50.high)
    assert (p95_of(GPU) or Interval(0, 0, 0)).estimate == 1.02 * 41_000.0
    assert (speedup_of(GPU) or Interval(0, 0, 0)).estimate == 1.5


def test_elsewhere_it_is_the_call_s() -> None:
    for record in (CPU, CALL_ONLY, replace(GPU, device_p50_ns=math.nan), replace(GPU, device_p50_ns=0.0)):
        assert result_of(record) is CALL
        assert p50_of(record) == (record.call_p50_ns, record.call_p50_ns_low, record.call_p50_ns_high)
    assert (speedup_of(CPU) or Interval(0, 0, 0)).estimate == CPU.speedup
    # A variant whose baseline has no device latency has a speedup of calls alone.
    assert (speedup_of(replace(GPU, device_speedup=None)) or Interval(0, 0, 0)).estimate == GPU.speedup


def test_what_is_not_there_is_none() -> None:
    nothing = replace(CPU, call_p50_ns=None, call_p95_ns=None, speedup=None)
    assert (
        p50_of(nothing) is None and p95_of(nothing) is None and speedup_of(nothing) is None and speedup_of(None) is None
    )
