import json
from pathlib import Path
from typing import Any

import pytest

from pairbench.features.attempt.attempts import Attempt, Beside, Tried
from pairbench.features.attempt.words import as_markdown, as_plain, case_lines, closing_lines
from pairbench.model.outcome import NOT_TRIED
from pairbench.model.plan import BrokenSuite
from pairbench.model.record import Record
from tests.golden import assert_golden
from tests.report.shown import baseline, ended, variant

LOAD = {"cores": 2, "before": None, "rounds": [1.5], "performance_states": [], "foreign_processes": []}
CPU: dict[str, Any] = {
    "case": "silu[n=1]",
    "device_kind": "cpu",
    **dict.fromkeys(("device_p50_ns", "device_speedup", "host_p50_ns", "launches_per_call", "kernels_per_call")),
}


def beside(change: float = 1.05, *, why_not: str = "", p50_ns: float = 37_143.0, **more: Any) -> Beside:
    record = variant("fused", run_id="20260102T030405-bbbb", device_p50_ns=p50_ns)
    return Beside(record=record, change=None if why_not else change, why_not=why_not, **more)


def compared() -> list[Tried]:
    """Return results on a GPU; their names say what their lines have to show."""
    roof: dict[str, Any] = {
        "dtype": "bfloat16",
        "flops": 1e9,
        "bytes_moved": 156e6,
        "gbps": 4000.0,
        "roofline_fraction": 0.85,
    }
    ceilings = json.dumps({"observed": {"ceilings": {"copy_gbps": 4700.0, "bfloat16_tflops": 700.0}}})
    tuned = variant("roof", **roof, environment=ceilings, autotuned=("norm: BLOCK=64, num_warps=4",))
    other, busy = "the operator's definition was another", "its host was busy"
    return [
        Tried(record=baseline()),
        Tried(record=variant("one_launch", launches_per_call=1), last=beside(clear=True)),
        Tried(record=variant("as_the_baseline"), last=beside(clear=True, shared=True)),
        Tried(record=variant("noise"), last=beside(clear=False)),
        Tried(record=variant("two_units"), last=beside(0.02, clear=True, p50_ns=2e6)),
        Tried(record=variant("compiled", mode="compile"), stored=beside(0.975, clear=True)),
        Tried(record=tuned, stored=beside(0.975, clear=True)),
        Tried(record=variant("why_not"), last=beside(why_not=other), stored=beside(why_not=busy)),
        Tried(record=variant("elsewhere"), last=beside(elsewhere=True), stored=beside(clear=True, elsewhere=True)),
    ]


def refused() -> list[Tried]:
    verified = {"role": "baseline", "status": "verified", "reason": None, "device_p50_ns": None, "call_p50_ns": None}
    return [
        Tried(record=baseline(**verified)),  # it only served to tell right from wrong
        Tried(record=ended("first", "verified", "")),
        Tried(record=ended("interpreted", "skipped", "Triton's interpreter verified it", margin=0.5)),
        Tried(record=ended("cuda", "skipped", "needs a CUDA device")),
        Tried(record=ended("second", "mismatched", "output differs; the worst, at [4, 15], is 1 instead of 2")),
        Tried(record=ended("hostile", "failed", "raised\nValueError: \x1b[31mred")),
        *(Tried(record=ended(name, "skipped", NOT_TRIED)) for name in ("third", "fourth")),
    ]


def attempt() -> Attempt:
    busy = json.dumps({"observed": {"load": LOAD}})
    on_cpu = [
        Tried(record=variant("counts_operators", ops_per_call=1, **CPU)),
        Tried(record=variant("busy", environment=busy, **CPU), last=Beside(record=variant("busy", **CPU))),
    ]
    broken = [Tried(record=ended(name, "failed", "impostors pass")) for name in ("said", "once")]
    cases = (compared(), refused(), on_cpu, on_cpu[1:], broken, broken[:1])
    keys = tuple(f"op[n={n}]" for n in range(5))
    suite = BrokenSuite(suite="a.py", reason="no Python")
    return Attempt(cases=tuple(map(tuple, cases)), left_out=keys, untried=("op[n=9]",), broken=(suite,))


def test_each_kind_of_result_has_its_line() -> None:
    found = attempt()
    lines = [line for case in found.cases for line in case_lines(case)] + closing_lines(found)
    assert_golden(Path(__file__).parent / "golden" / "try.table.txt", "\n".join(lines))
    assert_golden(Path(__file__).parent / "golden" / "try.markdown.txt", as_markdown(found))
    assert len(closing_lines(found, with_left_out=False)) == 1


def test_json_says_the_same() -> None:
    document = as_plain(attempt())
    _, first, *_, last = document["tries"]
    assert (first["implementation"], first["device_p50_ns"], first["stored_run"]) == ("one_launch", 39_000.0, None)
    assert first["last_try"]["p50_ns"] == 37_143.0 and first["last_try"]["change"] == pytest.approx(0.05)
    assert last["status"] == "failed" and last["last_try"] is None
    assert len(document["left_out"]) == 5 and document["untried"] == ["op[n=9]"]
    assert document["broken_suites"] == [{"suite": "a.py", "reason": "no Python"}]


def test_a_broken_suite_goes_before_what_is_wrong() -> None:
    assert attempt().exit_code == 2
    assert Attempt(cases=(tuple(refused()),)).exit_code == 1 and Attempt(cases=(tuple(compared()),)).exit_code == 0


def test_the_precision_of_float32_is_said_the_first_time() -> None:
    made: tuple[Record, ...] = baseline(float32_precision="ieee", device_kind="cuda"), variant("triton")
    found = Attempt(cases=(tuple(Tried(record=one) for one in made),))
    (line,) = closing_lines(found)
    assert line.startswith("float32 products and convolutions: IEEE float32")
    assert closing_lines(found, with_left_out=False) == []
    assert as_plain(found)["notes"] == [line] and line in as_markdown(found).replace("\\", "")
