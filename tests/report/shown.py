"""Records and comparisons to show."""

from typing import Any

from pairbench.model.comparison import Change, Comparison, GateOutcome, Judgement, Side, Verdict
from pairbench.model.record import Record, Series
from pairbench.stats import Interval

MEASURED: dict[str, Any] = {
    "run_id": "20260102T030405-aaaa",
    "started_at": "2026-01-02T03:04:05+00:00",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": True,
    "suite": "suites/norm.py",
    "operator": "rms_norm",
    "case": "rms_norm[dtype=bfloat16,tokens=4096]",
    "axes": '{"dtype": "bfloat16", "tokens": 4096}',
    "tier": "real",
    "implementation": "baseline",
    "role": "baseline",
    "mode": "eager",
    "device_name": "NVIDIA H200",
    "device_uuid": "GPU-1",
    "torch": "2.11.0",
    "environment": '{"tf32": false}',
    "status": "measured",
    "call_p50_ns": 41_000.0,
    "call_p50_ns_low": 40_900.0,
    "call_p50_ns_high": 41_100.0,
    "call_p95_ns": 43_000.0,
    "device_p50_ns": 39_000.0,
    "device_p50_ns_low": 38_900.0,
    "device_p50_ns_high": 39_100.0,
    "device_p95_ns": 40_000.0,
    "host_p50_ns": 20_000.0,
    "bound": "device",
    "device_speedup": 1.0,
    "device_speedup_low": 1.0,
    "device_speedup_high": 1.0,
    "speedup": 1.0,
    "speedup_low": 1.0,
    "speedup_high": 1.0,
    "launches_per_call": 6,
    "kernels_per_call": 6,
    "ops_per_call": 9,
    "launch_status": "exact",
    "max_abs_error": 0.0078125,
    "oracle_ratio": 1.0,
}
NOTHING = dict.fromkeys(
    name
    for name in MEASURED
    if name.endswith(("_ns", "_low", "_high", "_per_call", "error", "ratio", "speedup", "bound"))
)


def baseline(**changes: Any) -> Record:
    return Record(**{**MEASURED, **changes})


def variant(name: str, speedup: float = 2.0, **changes: Any) -> Record:
    ends = {
        f"{latency}speedup{end}": speedup + reach
        for latency in ("", "device_")
        for end, reach in (("", 0.0), ("_low", -0.02), ("_high", 0.02))
    }
    return baseline(role="variant", implementation=name, **{**ends, **changes})


def ended(name: str, status: str, reason: str, **changes: Any) -> Record:
    fate = {"role": "variant", "implementation": name, "status": status, "reason": reason}
    return baseline(**{**NOTHING, **fate, **changes})


def change(
    name: str = "fused", ratio: float | None = 1.03, outcome: GateOutcome = GateOutcome.REGRESSION, **changes: Any
) -> Change:
    """Return what became of a series: its median moved by a ratio, with an interval of 0.3 % to both sides."""
    identity = {field: changes.pop(field, MEASURED[field]) for field in ("device_name", "suite", "case", "mode")}
    judgements = () if ratio is None else (median(ratio, outcome),)
    plain: dict[str, Any] = {"role": "variant", "tier": "real", "reason": "P50 moved", "judgements": judgements}
    plain["verdict"] = judgements[0].verdict if judgements else None
    return Change(**{"series": Series(implementation=name, **identity), "outcome": outcome, **plain, **changes})


def median(ratio: float, outcome: GateOutcome = GateOutcome.REGRESSION, metric: str = "call_p50_ns") -> Judgement:
    """Return a judgement of a latency that was 41 us."""
    verdicts = {GateOutcome.UNDECIDED: Verdict.UNDECIDED, GateOutcome.UNCHANGED: Verdict.SAME}
    return Judgement(
        metric=metric,
        outcome=outcome,
        verdict=verdicts.get(outcome, Verdict.SLOWER if ratio > 1 else Verdict.FASTER),
        reference=41_000.0,
        current=41_000.0 * ratio,
        change=Interval(ratio, ratio - 0.003, ratio + 0.003),
        minimum_effect=0.02,
        floor=0.0041,
        p_value=0.0003,
        reason="P50 moved",
    )


def comparison(*changes: Change, **others: Any) -> Comparison:
    """Return a comparison of one run with five of main."""
    runs = tuple(f"2026010{day}T000000-aaaa" for day in range(1, 6))
    plain: dict[str, Any] = {
        "reference": Side(asked="main", runs=runs, commits=("abc1234aaaa", "cccccccccc", "def5678bbbb")),
        "current": Side(asked="latest", runs=("20260107T000000-bbbb",), commits=("1234567890",)),
    }
    return Comparison(changes=changes, **{**plain, **others})
