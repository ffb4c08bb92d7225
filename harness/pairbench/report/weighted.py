"""The answer of a suite whose cases have weights: the time a step of a program's calls, and what the variants would gain."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from pairbench.model.outcome import Status
from pairbench.model.plan import BASELINE, LIBRARY, OperatorDescription
from pairbench.model.record import Record, p50_of, speedup_of

_LISTED = 8  # operators that are shown


def weighted(records: Sequence[Record], operators: Iterable[OperatorDescription]) -> list[dict[str, Any]]:
    """Return for each device and mode the time of all weighted cases, times in ms: of the baselines, of the best variants, of the best alternatives.

    A gain is a part of the baselines' time. The ends of its interval combine those of the speedups as independent ones, and are None
    where a speedup has none, as on a busy host.
    """
    known = {(one.suite, case.key): (case.weight, one) for one in operators for case in one.cases if case.weight}
    groups: dict[tuple[str, str], dict[tuple[str, str], dict[str, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        if (key := (record.suite, record.case or "")) in known and record.mode and record.implementation:
            right = {record.implementation: record} if record.status == Status.MEASURED and p50_of(record) else {}
            groups[record.device_name, record.mode][key].update(right)
    return [_row(device, mode, cases, known) for (device, mode), cases in sorted(groups.items())]


def _row(
    device: str, mode: str, cases: dict[tuple[str, str], dict[str, Record]], known: dict[Any, Any]
) -> dict[str, Any]:
    total = best_ms = library_ms = spread = 0.0
    gains, best_of, unmeasured = defaultdict[str, float](float), dict[str, str](), []
    for key, found in cases.items():
        weight, operator = known[key]
        if BASELINE not in found:
            unmeasured.append(key[1])
            continue
        times = {name: _ns(one) * weight / 1e6 for name, one in found.items()}
        libraries = [one.name for one in operator.implementations if one.name == BASELINE or one.kind == LIBRARY]
        best = min(times, key=lambda name: times[name])
        total += times[BASELINE]
        best_ms += times[best]
        library_ms += min(times[name] for name in libraries if name in times)
        if best != BASELINE:
            gains[operator.name] += times[BASELINE] - times[best]
            best_of[operator.name] = best
            speedup = speedup_of(found[best])
            half = times[BASELINE] * (1 / speedup.low - 1 / speedup.high) / 2 if speedup else math.nan
            spread = math.hypot(spread, half)
    gain = (total - best_ms) / total if total else 0.0
    half = spread / total if total and math.isfinite(spread) else None
    ordered = sorted(gains.items(), key=lambda pair: -pair[1])
    return {
        "device": device,
        "mode": mode,
        "cases": len(cases),
        "unmeasured": unmeasured,
        "baseline_ms": total,
        "best_ms": best_ms,
        "alternatives_ms": library_ms,
        "gain": gain,
        "gain_low": None if half is None else gain - half,
        "gain_high": None if half is None else gain + half,
        "operators": [{"operator": name, "best": best_of[name], "gain": ms / total} for name, ms in ordered],
    }


def _ns(record: Record) -> float:
    latency = p50_of(record)
    return latency.estimate if latency else math.nan


def weighted_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines that show what `weighted` has found."""
    lines = list[str]()
    for row in rows:
        known = row["cases"] - len(row["unmeasured"])
        low, high = row["gain_low"], row["gain_high"]
        ends = "no interval: see above" if low is None else f"{low:.1%} to {high:.1%}"
        mode = "" if row["mode"] == "eager" else f", {row['mode']}"
        lines += [
            "",
            f"By weight, on {row['device']}{mode}: {row['baseline_ms']:,.3f} ms for the baselines of {known} cases",
            f"  {row['best_ms']:,.3f} ms with the best variant of each case: a gain of {row['gain']:.1%} ({ends})",
            f"  {row['alternatives_ms']:,.3f} ms with the best alternatives of kind library",
            *(f"  {one['gain']:6.1%}  {one['operator']}: {one['best']}" for one in row["operators"][:_LISTED]),
        ]
        if row["unmeasured"]:
            lines.append(f"  not in these sums, for want of a latency: {', '.join(row['unmeasured'][:_LISTED])}")
    return lines
