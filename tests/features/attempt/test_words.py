"""What `pairbench try` prints of each implementation."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from pairbench.features.attempt.attempts import Attempt, Beside, Tried
from pairbench.features.attempt.words import as_markdown, as_plain, case_lines, closing_lines
from pairbench.model.outcome import NOT_TRIED
from pairbench.model.plan import BrokenSuite
from pairbench.model.record import Record

Make = Callable[..., Record]
BUSY = json.dumps(
    {
        "observed": {
            "load": {"cores": 2, "before": None, "rounds": [1.5], "performance_states": [], "foreign_processes": []}
        }
    }
)
CPU: dict[str, Any] = {
    "device_kind": "cpu",
    "device_p50_ns": None,
    "device_speedup": None,
    "host_p50_ns": None,
    "launches_per_call": None,
    "kernels_per_call": None,
    "bound": None,
}


def test_latency_change_right_work_and_speedup_stand_in_one_line(baseline: Make, variant: Make) -> None:
    now = variant("triton", device_p50_ns=11_200.0, launches_per_call=1)
    last = Beside(record=variant("triton", device_p50_ns=12_900.0), change=11.2 / 12.9, clear=True)
    heading, first, second = case_lines([Tried(record=baseline()), Tried(record=now, last=last)])
    assert heading == "rms_norm[dtype=bfloat16,tokens=4096] (suites/norm.py, real, NVIDIA H200)"
    assert first == "  baseline  39.00 us, 6 launches"
    assert second == "  triton    12.90 -> 11.20 us (-13.2%), right, 1 launch, speedup 2.000x (1.980-2.020)"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"clear": True, "shared": True}, "(+5.00%, as the baseline)"),
        ({"clear": False}, "(+5.00%, within noise)"),
        ({"clear": True}, "(+5.00%)"),
    ],
)
def test_a_change_says_what_may_be_behind_it(variant: Make, more: dict[str, Any], said: str) -> None:
    last = Beside(record=variant("fused", device_p50_ns=37_143.0), change=1.05, **more)
    assert f"37.14 -> 39.00 us {said}, right" in case_lines([Tried(record=variant("fused"), last=last)])[1]


def test_units_stand_where_they_differ(variant: Make) -> None:
    last = Beside(record=variant("fused", device_p50_ns=2e6), change=0.02, clear=True)
    assert "2.000 ms -> 39.00 us (-98.0%)" in case_lines([Tried(record=variant("fused"), last=last)])[1]


def test_on_a_cpu_operators_are_counted(variant: Make) -> None:
    record = variant("fused", ops_per_call=1, **CPU)
    assert case_lines([Tried(record=record)])[1] == "  fused  41.00 us, right, 1 operator, speedup 2.000x (1.980-2.020)"


def test_what_is_wrong_says_where_and_the_others_were_not_tried(baseline: Make, ended: Callable[..., Record]) -> None:
    where = "output differs from the baseline's in 1 of 80 elements; the worst, at [4, 15], is 1 instead of 2"
    verified = {"role": "baseline", "status": "verified", "reason": None, "device_p50_ns": None, "call_p50_ns": None}
    case = [
        Tried(record=baseline(**verified)),
        Tried(record=ended("first", "verified", "")),
        Tried(record=ended("second", "mismatched", where)),
        Tried(record=ended("third", "skipped", NOT_TRIED)),
        Tried(record=ended("fourth", "skipped", NOT_TRIED)),
    ]
    assert case_lines(case)[1:] == [
        "  first   right, not timed",
        f"  second  WRONG: {where}",
        "  not tried: third, fourth",
    ]


def test_what_was_verified_and_is_not_to_be_timed_is_right(ended: Callable[..., Record]) -> None:
    interpreted = ended("triton", "skipped", "Triton's interpreter verified it", margin=0.5)
    skipped = ended("cuda", "skipped", "needs a CUDA device")
    lines = case_lines([Tried(record=interpreted), Tried(record=skipped)])
    assert lines[1:] == [
        "  triton  right, not timed: Triton's interpreter verified it",
        "  cuda    skipped: needs a CUDA device",
    ]


def test_what_ends_a_whole_case_is_said_once(baseline: Make, ended: Callable[..., Record]) -> None:
    why = "the tolerance lets impostors through"
    case = [Tried(record=ended(name, "failed", why)) for name in ("one", "two")]
    assert case_lines(case)[1:] == [f"  FAILED: {why}"]
    assert case_lines(case[:1])[1:] == [f"  one  FAILED: {why}"]


def test_the_rate_the_configuration_and_the_stored_run_are_in_a_second_line(variant: Make) -> None:
    record = variant(
        "fused",
        dtype="bfloat16",
        flops=1e9,
        bytes_moved=156e6,
        tflops=0.02564,
        gbps=4000.0,
        roofline_fraction=0.85,
        environment=json.dumps({"observed": {"ceilings": {"copy_gbps": 4700.0, "bfloat16_tflops": 700.0}}}),
        autotuned=("norm: BLOCK=64, num_warps=4",),
    )
    stored = Beside(
        record=variant("fused", run_id="20260102T030405-bbbb", device_p50_ns=40_000.0), change=0.975, clear=True
    )
    _, first, second = case_lines([Tried(record=record, stored=stored)])
    assert second.startswith(" " * first.index("39.00"))
    assert second.split("; ") == [
        f"{' ' * first.index('39.00')}4000 GB/s, 85% of the roof",
        "autotuned norm: BLOCK=64, num_warps=4",
        "run 20260102T030405-bbbb: 40.00 us (-2.50%)",
    ]


def test_what_cannot_be_compared_says_why(variant: Make) -> None:
    last = Beside(record=variant("fused", device_p50_ns=1.0), why_not="the operator's definition was another")
    stored = Beside(record=variant("fused", run_id="r1"), why_not="its host was busy")
    _, first, second = case_lines([Tried(record=variant("fused"), last=last, stored=stored)])
    assert "->" not in first
    assert second.strip() == (
        "not compared with the last try: the operator's definition was another; not compared with run r1: its host was busy"
    )


def test_another_environment_is_told(variant: Make) -> None:
    last = Beside(record=variant("fused"), change=1.2, clear=True, elsewhere=True)
    stored = Beside(record=variant("fused", run_id="r1"), change=1.2, clear=True, elsewhere=True)
    second = case_lines([Tried(record=variant("fused"), last=last, stored=stored)])[2]
    assert "the last try was in another environment" in second and "run r1 in another environment: 39.00 us" in second


def test_on_a_busy_host_neither_changes_nor_speedups_are_told(variant: Make) -> None:
    record = variant("fused", environment=BUSY, **CPU)
    last = Beside(record=variant("fused", **CPU))
    _, first, why = case_lines([Tried(record=record, last=last)])
    assert "41.00 -> 41.00 us?, right, 9 operators, speedup withheld" in first and "1.5 of 2 cores are busy" in why


def test_names_from_anywhere_stay_on_their_line(ended: Callable[..., Record]) -> None:
    (_, line) = case_lines([Tried(record=ended("fused", "failed", "raised\nValueError: \x1b[31mred"))])
    assert line == "  fused  FAILED: raised ValueError: [31mred"


def test_what_was_left_alone_is_named(variant: Make) -> None:
    keys = tuple(f"op[n={n}]" for n in range(5))
    attempt = Attempt(cases=((Tried(record=variant("fused")),),), left_out=keys, untried=("op[n=9]",))
    assert closing_lines(attempt) == [
        "Not tried, for something before is wrong: op[n=9]",
        "One case of each operator; --all-cases takes the others, too: op[n=0], op[n=1], op[n=2] and 2 more",
    ]
    assert closing_lines(attempt, with_left_out=False) == closing_lines(attempt)[:1]


def test_the_other_formats_say_the_same(variant: Make, ended: Callable[..., Record]) -> None:
    last = Beside(record=variant("fused", device_p50_ns=30_000.0), change=1.3, clear=True)
    case = (Tried(record=variant("fused"), last=last), Tried(record=ended("wrong", "mismatched", "it differs")))
    attempt = Attempt(cases=(case,), left_out=("op[n=1]",), broken=(BrokenSuite(suite="a.py", reason="no Python"),))
    text = as_markdown(attempt)
    assert (
        "- fused 30.00 -&gt; 39.00 us (+30.0%)" in text
        and "- wrong WRONG: it differs" in text
        and "op\\[n=1\\]" in text
    )
    document = as_plain(attempt)
    first, second = document["tries"]
    assert first["implementation"] == "fused" and first["device_p50_ns"] == 39_000.0 and first["stored_run"] is None
    assert first["last_try"]["p50_ns"] == 30_000.0 and first["last_try"]["change"] == pytest.approx(0.3)
    assert second["status"] == "mismatched" and second["last_try"] is None
    assert document["left_out"] == ["op[n=1]"] and document["broken_suites"] == [
        {"suite": "a.py", "reason": "no Python"}
    ]
    assert attempt.exit_code == 2
    assert Attempt(cases=(case,)).exit_code == 1 and Attempt(cases=(case[:1],)).exit_code == 0


def test_the_precision_of_float32_is_said_the_first_time(baseline: Make, variant: Make) -> None:
    made = baseline(float32_precision="ieee", device_kind="cuda"), variant("triton", device_kind="cuda")
    attempt = Attempt(cases=(tuple(Tried(record=one) for one in made),))
    (line,) = closing_lines(attempt)
    assert line.startswith("float32 products and convolutions: IEEE float32")
    assert closing_lines(attempt, with_left_out=False) == []
    assert as_plain(attempt)["notes"] == [line] and line in as_markdown(attempt).replace("\\", "")
